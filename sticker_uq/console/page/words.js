// What the cell says in its own words, said in the page's: no sentence of a node is shown that strings.js has no words for.
import { STRINGS, fill } from "./strings.js";

// What the supervisor calls the reasons that close the gate.
const CLOSED = {
  "no scene was received yet": "no_scene", "the newest scene is too old": "stale_scene", "perception failed": "failed_scene",
  "the scene is implausible": "implausible_scene", "the images come out of order": "stamp_order", "the picture is frozen": "frozen_image",
  "the picture is too dark or too bright": "exposure", "the camera has changed": "source_changed",
  "the detector or the policy has changed": "model_changed", "the clock is implausible": "clock", "it is not known where an object lies": "pose",
  "too few scenes in a row agree": "inconsistent", "something is too uncertain": "uncertain",
  "the detector saw something that no box explains": "unexplained", "a monitor of the panel objects": "panel",
  "no sticker is to be removed": "nothing_to_remove", "a person decides": "waiting_for_operator", held: "held", "the arm is not ready": "arm_failed",
  "checking whether the sticker is gone": "verifying", fault: "fault", "a newer scene contradicts the permit": "contradicted",
  "not active": "not_active", "the policy does not hold here": "assumption", "what happens cannot be recorded": "audit",
  "another supervisor speaks in this cell": "second_gate_publisher", "another supervisor may be there unheard": "unknown_gate_publisher",
};
const LISTS = { signal: STRINGS.signals, thing: STRINGS.things, measure: STRINGS.measures, changed: STRINGS.changed };
// A reason that closes the gate is known word for word: it goes before what merely looks alike.
const PATTERNS = Object.keys(STRINGS.cell).map(pattern).sort((a, b) => b.closes - a.closes || b.plain - a.plain);

// {name} of a template stands for whatever is there, {name:number} for a number, {name:text} for sentences, {name:signal} and the
// like for what a list of strings.js names.
function pattern(key) {
  const names = [];
  const parts = key.split(/\{(\w+(?::\w+)?)\}/).map((part, index) => {
    if (index % 2 === 0) return part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
    names.push(part.split(":"));
    return part.endsWith(":number") ? "(-?[\\d.e+-]+)" : "(.+?)";
  });
  const closes = names.some(([, kind]) => kind === "closed");
  return { key, names, closes, plain: key.replace(/\{.*?\}/g, "").length, regex: new RegExp("^" + parts.join("") + "$", "s") };
}

// The page's words for one sentence of the cell; null when there are none.
function worded(sentence) {
  for (const { key, names, regex } of PATTERNS) {
    const found = regex.exec(sentence);
    if (!found) continue;
    const values = names.map(([name, kind], index) => [name, valueOf(found[index + 1], kind)]);
    if (values.every(([, value]) => value !== undefined)) return fill(STRINGS.cell[key], Object.fromEntries(values));
  }
  return null;
}

function valueOf(value, kind) {
  if (!kind || kind === "number") return value;
  if (kind === "text") return say(value);
  if (kind === "closed") return STRINGS.closed[CLOSED[value]];
  if (kind === "phase") return value === value.toUpperCase() ? STRINGS.states[value.toLowerCase()] : undefined;
  return LISTS[kind][value];
}

// The page's words for what the cell says, one or more sentences, without those of `besides`, which stand elsewhere.
export function say(text, besides = []) {
  const said = apart(text || "").map((sentence) => worded(sentence) ?? STRINGS.noWords);
  return [...new Set(said)].filter((words) => words && !besides.includes(words)).join(". ");
}

// The sentences of a text. A few hold the mark that stands between sentences; then all of it is needed to have words.
function apart(text) {
  const parts = text ? text.split("; ") : [], found = [];
  while (parts.length) {
    let count = 1;
    while (count < parts.length && worded(parts.slice(0, count).join("; ")) === null) count += 1;
    if (worded(parts.slice(0, count).join("; ")) === null) count = 1;
    found.push(parts.splice(0, count).join("; "));
  }
  return found;
}

// Whether there are words for a sentence as a whole.
export function isKnown(sentence) { return worded(sentence) !== null; }
