/* SPDX-License-Identifier: Apache-2.0 */
// The gate in one glance, how the nodes are, and what happened lately.
import { STRINGS, fill, plain, numbers } from "./strings.js";

const $ = (id) => document.getElementById(id);
// A shape for each state, so that it is told without colour.
const SYMBOLS = { unknown: "–", blocked: "■", monitoring: "●", permitted: "▶", removing: "▶", verifying: "◆", intervention: "?", fault: "!", held: "‖", lost: "✕" };
const MARKS = { ok: "✓", warning: "▲", error: "✕", silent: "–" };
// Alarms of the assumption monitor. Another policy that does not hold ends by itself when what differs is restored.
const ALARMS = ["drift", "wrong_removal", "missed_sticker"];
let last = "unknown"; // the state before the contact was lost

export function showGate(state) {
  const gate = state.gate || { state: "unknown", closed: [], details: [], held: false };
  document.body.classList.toggle("old", !state.connected);
  // a question and a fault want something of a person while the gate is held, too
  last = !state.connected ? "lost" : gate.held && !["intervention", "fault"].includes(gate.state) ? "held" : gate.state;
  if (!$("stale").hidden) return; // old news
  tile(last);
  text("meaning", state.connected ? STRINGS.meanings[last] : "");
  text("closed", plain(gate.closed.filter((reason) => !["held", "waiting_for_operator", gate.state].includes(reason.code))));
  text("why", plain(gate.details));
  details($("gate-details"), [...gate.closed, ...gate.details]);
  text("title", state.workpiece ? fill(STRINGS.laptop, { name: state.workpiece.replace(/^laptop[-_ ]*/i, "") }) : STRINGS.title);
  banner("held", gate.held ? STRINGS.held : "");
  const fault = gate.state === "fault", alarmed = gate.closed.some(({ code }) => code === "assumption") && gate.details.some(({ code }) => ALARMS.includes(code));
  banner("alarm", !state.connected ? STRINGS.lost : fault ? STRINGS.fault : alarmed ? STRINGS.alarmed : "");
  text("reset", fault ? STRINGS.reset : STRINGS.resetAlarm);
  $("reset").hidden = !state.connected || !(fault || alarmed);
}

// The page has heard nothing for `age` ms: whatever it shows is covered.
export function showStale(stale, age) {
  if (stale) {
    text("stale-for", fill(STRINGS.staleFor, { seconds: Math.round(age / 1000) }));
    if ($("stale").hidden) { $("stale").querySelector("h2").textContent = STRINGS.stale; $("stale").querySelector("p").textContent = STRINGS.staleHint; }
  }
  if ($("stale").hidden === !stale) return;
  $("stale").hidden = !stale;
  for (const id of ["panel", "foot", "left"]) $(id).inert = stale;
  tile(stale ? "lost" : last);
  if (!stale) return;
  for (const id of ["meaning", "closed", "why"]) text(id, "");
  for (const id of ["held", "alarm"]) banner(id, "");
  $("gate-details").hidden = true;
  text("title", STRINGS.title);
}

function tile(kind) {
  const words = STRINGS.states[kind];
  if ($("state").className !== "state " + kind) $("state").className = "state " + kind;
  text("symbol", SYMBOLS[kind]); text("state-name", words);
  document.title = words + " – " + STRINGS.title;
}

export function showHealth(health) {
  const worst = ["ok", "warning", "silent", "error"].reduce((before, level) => (health.some((node) => node.level === level) ? level : before), "ok");
  text("health-title", STRINGS.health + ": " + MARKS[worst] + " " + STRINGS.levels[worst]);
  $("health").replaceChildren(...health.flatMap((node) => [
    line(node.level, MARKS[node.level] + " " + (STRINGS.nodes[node.node] || node.node) + ": " + STRINGS.levels[node.level]),
    // what a comparison has found is no fault, and is read here
    ...node.parts.filter((part) => part.level !== "ok" || part.part === "comparison").map((part) => line("detail", (STRINGS.parts[part.part] || part.part) + ": " + (part.message || STRINGS.levels[part.level]))),
  ]));
}

export function showHistory(history) {
  text("history-title", STRINGS.history);
  $("history").replaceChildren(...history.map((event) => {
    const time = new Date(event.stamp_ms).toLocaleTimeString(STRINGS.lang, { hour12: false });
    const answers = event.answers.map((answer) => STRINGS.answers[answer] || STRINGS.scenes[answer] || answer).join(", ");
    const what = STRINGS.kinds[event.kind] || event.kind;
    return line(event.kind, time + "  " + [what, event.name, answers, plain(event.reasons)].filter(Boolean).join(": "));
  }));
}

// The numbers behind `reasons` in the folded `box`, which stays as it is while they change.
export function details(box, reasons) {
  const words = numbers(reasons);
  box.hidden = !words;
  box.firstElementChild.textContent = STRINGS.details; box.lastElementChild.textContent = words;
}

function line(kind, words) {
  const item = document.createElement("li");
  item.className = kind; item.textContent = words;
  return item;
}

function banner(id, words) {
  const place = $(id).querySelector("span");
  if (place.textContent !== words) place.textContent = words;
  $(id).hidden = !words;
}

// Written only when it differs: what is written into a live region is read aloud.
function text(id, value) { if ($(id).textContent !== value) $(id).textContent = value; }
