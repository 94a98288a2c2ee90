/* SPDX-License-Identifier: Apache-2.0 */
// The gate in one glance, how the nodes are, and what happened lately.
import { LOCALE, STRINGS, fill, plain, numbers, subject } from "./strings.js";

const $ = (id) => document.getElementById(id);
// A shape for each state, so that it is told without colour.
const SYMBOLS = {
  unknown: "–",
  blocked: "■",
  monitoring: "●",
  permitted: "▶",
  removing: "▶",
  verifying: "◆",
  intervention: "?",
  fault: "!",
  held: "‖",
  lost: "✕",
};
const MARKS = { ok: "✓", warning: "▲", error: "✕", silent: "–" };
const NOTHING_KNOWN = { state: "unknown", closed: [], details: [], held: false };
const FRESH_S = 3;
let last = ["unknown", "unknown"]; // the kind and the name of the state before the contact was lost

// Shows the gate; returns the name of its state, which tells a held one from another.
export function showGate(state) {
  const gate = state.gate || NOTHING_KNOWN;
  document.body.classList.toggle("old", !state.connected);
  // a question and a fault want something of a person while the gate is held, too
  const kind = !state.connected ? "lost" : gate.held && !["intervention", "fault"].includes(gate.state) ? "held" : gate.state;
  // another policy that does not hold is no alarm: it ends by itself when what differs is restored
  const fault = gate.state === "fault",
    alarm = gate.closed.some(({ code }) => code === "assumption") && gate.details.find(({ code }) => Object.hasOwn(STRINGS.alarms, code));
  // the bar says what an alarm is about
  const why = plain(gate.details.filter((reason) => fault || reason !== alarm)),
    name = kind === "blocked" && !gate.closed.length && !why ? "waits" : kind;
  last = [kind, name];
  const shown = gate.held && name !== "held" ? name + " held" : name;
  if (!$("stale").hidden) return "lost"; // old news
  tile(...last);
  text("meaning", state.connected ? STRINGS.meanings[name] : "");
  text(
    "closed",
    plain(gate.closed.filter((reason) => !["held", "waiting_for_operator", gate.state].includes(reason.code) && !reason.explained)),
  );
  text("why", why);
  details($("gate-details"), [...gate.closed, ...gate.details]);
  text("title", state.workpiece ? fill(STRINGS.laptop, { name: state.workpiece.replace(/^laptop[-_ ]*/i, "") }) : STRINGS.title);
  banner("held", gate.held ? heldWords(state.hold || {}) : "");
  $("hold").classList.toggle("pressed", gate.held);
  banner(
    "alarm",
    !state.connected
      ? STRINGS.lost
      : fault
        ? STRINGS.fault
        : alarm
          ? fill(STRINGS.alarms[alarm.code], { subject: subject(alarm.subject) })
          : "",
  );
  $("reset").hidden = !state.connected || !fault;
  const restart = Boolean(state.connected && alarm && !fault);
  if ($("restart").hidden === restart) {
    $("restart").hidden = !restart;
    askRestart(false);
  }
  return shown;
}

// Whether a press of the restart is to be confirmed now.
export function askRestart(ask) {
  $("restart-begin").hidden = ask;
  $("restart-ask").hidden = !ask;
}

// What the person at the machine does now about why the arm does not peel; empty when there is nothing. An open question is not meant.
export function toDo(state) {
  const gate = state.gate || NOTHING_KNOWN,
    asked = gate.state === "intervention" || state.request;
  if (!state.connected) return "";
  const codes = gate.closed.map(({ code }) => code),
    known = Object.keys(STRINGS.advice).filter((code) => codes.includes(code));
  const calm = gate.closed.filter((reason) => reason.calm).map(({ code }) => code);
  const urgent = known.find((code) => !calm.includes(code) || (code === "waiting_for_operator" && !asked));
  if (urgent) return STRINGS.advice[urgent];
  return ["blocked", "fault"].includes(gate.state) ? STRINGS.advice[known[0]] || STRINGS.adviceUnknown : "";
}

// Whether the arm may act on what the newest picture shows.
export function acts(state) {
  const gate = state.gate || NOTHING_KNOWN;
  return Boolean(
    state.connected &&
      !gate.held &&
      !["unknown", "blocked", "fault"].includes(gate.state) &&
      state.scene_age_s !== null &&
      state.scene_age_s < FRESH_S,
  );
}

// How old the picture of the newest scene is, in words; empty while it is what the camera sees now.
export function age(state) {
  const seconds = state.scene_age_s;
  if (seconds === null || seconds < FRESH_S) return "";
  const [words, count] = seconds < 120 ? [STRINGS.ageSeconds, seconds] : [STRINGS.ageMinutes, seconds / 60];
  return fill(words, { count: Math.round(count) });
}

function heldWords({ name, since_ms }) {
  const words = !since_ms ? STRINGS.held : name ? STRINGS.heldBy : STRINGS.heldSince;
  return fill(words, { name, time: since_ms ? clock(since_ms) : "" });
}

function clock(stamp_ms) {
  return new Date(stamp_ms).toLocaleTimeString(LOCALE, { hour12: false });
}

// The page has heard nothing for `age` ms: whatever it shows is covered.
export function showStale(stale, age) {
  if (stale) {
    text("stale-for", fill(STRINGS.staleFor, { seconds: Math.round(age / 1000) }));
    if ($("stale").hidden) {
      $("stale").querySelector("h2").textContent = STRINGS.stale;
      $("stale").querySelector("p").textContent = STRINGS.staleHint;
    }
  }
  if ($("stale").hidden === !stale) return;
  $("stale").hidden = !stale;
  document.body.classList.toggle("stale", stale);
  for (const id of ["panel", "foot", "left"]) $(id).inert = stale;
  tile(...(stale ? ["lost", "lost"] : last));
  if (!stale) return;
  for (const id of ["meaning", "closed", "why"]) text(id, "");
  for (const id of ["held", "alarm"]) banner(id, "");
  $("gate-details").hidden = true;
  text("title", STRINGS.title);
}

function tile(kind, name) {
  const words = STRINGS.states[name];
  if ($("state").className !== "state " + kind) $("state").className = "state " + kind;
  text("symbol", SYMBOLS[kind]);
  text("state-name", words);
  document.title = words + " – " + STRINGS.title;
}

export function showHealth(state) {
  // the machine is not well while it is stopped, however well each of its programs runs
  const machine = !state.connected ? "silent" : { fault: "error", blocked: "warning" }[(state.gate || NOTHING_KNOWN).state] || "ok";
  const health = machine === "ok" ? state.health : [{ node: "machine", level: machine, parts: [] }, ...state.health];
  const worst = ["ok", "warning", "silent", "error"].reduce(
    (before, level) => (health.some((node) => node.level === level) ? level : before),
    "ok",
  );
  text("health-title", STRINGS.health + ": " + MARKS[worst] + " " + STRINGS.levels[worst]);
  $("health").replaceChildren(
    ...health.flatMap((node) => [
      line(node.level, MARKS[node.level] + " " + (STRINGS.nodes[node.node] || node.node) + ": " + STRINGS.levels[node.level]),
      ...(node.level === "silent" ? [line("detail", STRINGS.silentHint)] : []),
      // what a comparison has found is no fault, and is read here
      ...node.parts
        .filter((part) => part.level !== "ok" || part.part === "comparison")
        .map((part) =>
          line("detail", (STRINGS.parts[part.part] || part.part) + ": " + (part.message ? "" : STRINGS.levels[part.level]), part.message),
        ),
    ]),
  );
}

export function showHistory(history) {
  text("history-title", STRINGS.history);
  $("history").replaceChildren(
    ...history.map((event) => {
      const time = clock(event.stamp_ms);
      const answers = event.answers.map((answer) => STRINGS.answers[answer] || STRINGS.scenes[answer] || answer).join(", ");
      const what = STRINGS.kinds[event.kind] || event.kind;
      return line(event.kind, time + "  " + [what, event.name, answers, plain(event.reasons)].filter(Boolean).join(": "));
    }),
  );
}

// The numbers behind `reasons` in the folded `box`, which stays as it is while they change.
export function details(box, reasons) {
  const words = numbers(reasons);
  box.hidden = !words;
  box.firstElementChild.textContent = STRINGS.details;
  box.lastElementChild.textContent = words;
}

// `said`: what a program says, which is English.
function line(kind, words, said = "") {
  const item = document.createElement("li"),
    english = document.createElement("span");
  item.className = kind;
  item.textContent = words;
  english.lang = "en";
  english.textContent = said;
  item.append(english);
  return item;
}

function banner(id, words) {
  const place = $(id).querySelector("span");
  if (place.textContent !== words) place.textContent = words;
  $(id).hidden = !words;
}

// Written only when it differs: what is written into a live region is read aloud.
function text(id, value) {
  if ($(id).textContent !== value) $(id).textContent = value;
}
