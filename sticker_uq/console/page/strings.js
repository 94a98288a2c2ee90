/* SPDX-License-Identifier: Apache-2.0 */
// The words of the page, which the cell serves in the language of the browser, or in the one that was chosen here, and how reasons are said in them.
import { SAME_PLACE_IOU, STRINGS } from "./words.js";
export { SAME_PLACE_IOU, STRINGS };
// Numbers and times as in the person's country, where the browser says it.
export const LOCALE = navigator.languages.find((tag) => tag.startsWith(STRINGS.lang)) || STRINGS.lang;
const PLURALS = new Intl.PluralRules(LOCALE),
  LIMIT = /^(above|below)_limit$/;

// The language of the page, and the control that chooses another. What is typed is kept by the page; the rest comes again.
export function speak(select) {
  document.documentElement.lang = STRINGS.lang;
  select.setAttribute("aria-label", STRINGS.chooseLanguage);
  select.replaceChildren(...Object.entries(STRINGS.languages).map(([lang, name]) => new Option(name, lang, false, lang === STRINGS.lang)));
  for (const option of select.options) option.lang = option.value;
  select.addEventListener("change", () => {
    // biome-ignore lint/suspicious/noDocumentCookie: the page is served without TLS, too, where there is no cookieStore
    document.cookie = `language=${select.value}; max-age=31536000; samesite=strict`;
    location.reload();
  });
}

// A template with the values in the places of their names; of one with plural forms, that for the `count` among them.
export function fill(template, values) {
  const words = template.other ? template[PLURALS.select(values.count)] || template.other : template;
  return words.replace(/\{(\w+)\}/g, (_, name) => (name in values ? shown(values[name]) : ""));
}

// Reasons in plain words, without the numbers that decided and without what a program said.
export function plain(reasons) {
  return [...new Set(reasons.map(plainly).filter(Boolean))].join(". ");
}

// The numbers that decided, and what a program said, which is English.
export function numbers(reasons) {
  return [...new Set(reasons.map(inNumbers).filter(Boolean))].join(". ");
}

function plainly(reason) {
  if (reason.code === "below_limit" && reason.limit >= 1) return STRINGS.asksAlways; // nothing is ever that sure
  if (LIMIT.test(reason.code) && Object.hasOwn(STRINGS.doubts, reason.subject)) return STRINGS.doubts[reason.subject];
  return message(reason) ?? reason.text; // of an unknown code, in the words of the cell
}

function message(reason) {
  const words = own(STRINGS.messages, reason.code);
  return words && capital(fill(words, { ...reason.values, subject: subject(reason.subject) }));
}

function inNumbers(reason) {
  const {
      value,
      limit,
      values: { detail, signal, ...others },
    } = reason,
    words = own(STRINGS.messages, reason.code);
  if (!words) return ""; // unknown, or said by what is asked
  const unsaid = Object.entries(others).filter(([name]) => !JSON.stringify(words).includes("{" + name + "}"));
  // as many digits as it takes to tell the two apart
  const digits = [3, 4, 5, 6].find((count) => value !== null && limit !== null && shown(value, count) !== shown(limit, count)) || 3;
  const parts = [
    value !== null && shown(value, digits),
    value !== null && limit !== null && fill(STRINGS.limit, { limit: shown(limit, digits) }),
    signal && subject(signal),
    ...unsaid.map(([name, each]) => (own(STRINGS.values, name) ?? name) + " " + shown(each)),
    detail,
  ].filter(Boolean);
  const head = LIMIT.test(reason.code) ? capital(subject(reason.subject)) : message(reason);
  return parts.length ? [head, parts.join(", ")].filter(Boolean).join(": ") : "";
}

function shown(value, maximumSignificantDigits = 3) {
  return typeof value === "number"
    ? value.toLocaleString(LOCALE, Number.isInteger(value) ? { useGrouping: false } : { maximumSignificantDigits })
    : value;
}

// The words of what a reason is about.
export function subject(name) {
  return own(STRINGS.subjects, name) ?? name;
}

// The entry `name`, which comes from the cell and may be that of something every object has.
function own(words, name) {
  return Object.hasOwn(words, name) ? words[name] : undefined;
}

function capital(words) {
  return words.charAt(0).toUpperCase() + words.slice(1);
}
