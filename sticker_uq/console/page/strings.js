/* SPDX-License-Identifier: Apache-2.0 */
// The words of the page, which the cell serves from its catalogue (sticker_uq/words_en.json), and how reasons are said in them.
export const STRINGS = await (await fetch(new URL("./words.json", import.meta.url))).json();

// A template with the values in the places of their names.
export function fill(template, values) {
  return template.replace(/\{(\w+)\}/g, (_, name) => (name in values ? values[name] : ""));
}

// Reasons in plain words, without the numbers that decided and without what a program said.
export function plain(reasons) { return [...new Set(reasons.map(plainly).filter(Boolean))].join(". "); }

// In the words of the cell those reasons that say more there: values, or what a program said.
export function numbers(reasons) { return [...new Set(reasons.filter(saysMore).map((reason) => capital(reason.text)))].join(". "); }

function plainly(reason) {
  if (reason.code === "below_limit" && reason.limit >= 1) return STRINGS.asksAlways; // nothing is ever that sure
  if (/^(above|below)_limit$/.test(reason.code) && Object.hasOwn(STRINGS.doubts, reason.subject)) return STRINGS.doubts[reason.subject];
  const words = own(STRINGS.messages, reason.code);
  if (words === undefined) return reason.text;
  const values = Object.entries(reason.values).map(([name, value]) => [name, typeof value === "number" ? String(Number(value.toPrecision(3))) : value]);
  return capital(fill(words, { ...Object.fromEntries(values), subject: subject(reason.subject) }));
}

function saysMore({ code, value, values }) {
  const words = own(STRINGS.messages, code);
  return words !== undefined && (value !== null || Object.keys(values).some((name) => !words.includes("{" + name + "}")));
}

// The words of what a reason is about.
export function subject(name) { return own(STRINGS.subjects, name) ?? name; }

// The entry `name`, which comes from the cell and may be that of something every object has.
function own(words, name) { return Object.hasOwn(words, name) ? words[name] : undefined; }

function capital(words) { return words.charAt(0).toUpperCase() + words.slice(1); }
