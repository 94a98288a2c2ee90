// The gate in one glance, how the nodes are, and what happened lately.
import { STRINGS, sayAll } from "./strings.js";

const $ = (id) => document.getElementById(id);
// A shape for each state, so that it is told without colour.
const SYMBOLS = { unknown: "–", blocked: "■", monitoring: "●", permitted: "▶", removing: "▶", verifying: "◆", intervention: "?", fault: "!", lost: "✕" };
const MARKS = { ok: "✓", warning: "▲", error: "✕", silent: "–" };

export function showGate(state) {
  const gate = state.gate || { state: "unknown", closed: [], details: [], held: false };
  const kind = state.connected ? gate.state : "lost";
  $("state").className = "state " + kind;
  text("symbol", SYMBOLS[kind]);
  text("state-name", STRINGS.states[state.connected ? gate.state : "unknown"]);
  text("closed", sayAll(gate.closed));
  text("why", sayAll(gate.details));
  text("title", state.workpiece ? STRINGS.laptop + " " + state.workpiece : STRINGS.title);
  document.title = STRINGS.states[state.connected ? gate.state : "unknown"] + " – " + STRINGS.title;
  text("hold", gate.held ? STRINGS.release : STRINGS.hold);
  $("hold").setAttribute("aria-pressed", String(gate.held));
  $("reset").hidden = gate.state !== "fault";
  alarm(state.connected ? "" : STRINGS.lost);
}

export function showLost() {
  $("state").className = "state lost";
  text("symbol", SYMBOLS.lost); text("state-name", STRINGS.states.unknown);
  document.body.classList.add("old");
  alarm(STRINGS.disconnected);
}

export function showHealth(health) {
  const worst = ["ok", "warning", "silent", "error"].reduce((before, level) => (health.some((node) => node.level === level) ? level : before), "ok");
  text("health-title", STRINGS.health + ": " + MARKS[worst] + " " + STRINGS.levels[worst]);
  $("health").replaceChildren(...health.flatMap((node) => [
    line(node.level, MARKS[node.level] + " " + (STRINGS.nodes[node.node] || node.node) + ": " + STRINGS.levels[node.level]),
    ...node.parts.filter((part) => part.level !== "ok").map((part) => line("detail", (STRINGS.parts[part.part] || part.part) + ": " + part.message)),
  ]));
}

export function showHistory(history) {
  text("history-title", STRINGS.history);
  $("history").replaceChildren(...history.map((event) => {
    const time = new Date(event.stamp_ms).toLocaleTimeString(STRINGS.lang, { hour12: false });
    const answers = event.answers.map((answer) => STRINGS.answers[answer] || STRINGS.scenes[answer] || answer).join(", ");
    const what = STRINGS.kinds[event.kind] || event.kind;
    return line(event.kind, time + "  " + [what, event.name, answers, sayAll(event.reasons)].filter(Boolean).join(": "));
  }));
}

function line(kind, words) {
  const item = document.createElement("li");
  item.className = kind; item.textContent = words;
  return item;
}

function alarm(words) { text("alarm", words); $("alarm").hidden = !words; }

function text(id, value) { $(id).textContent = value; }
