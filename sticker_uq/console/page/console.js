// The operator's page. Everything that comes from the cell is written with textContent: nothing of it can become markup.
import { STRINGS, fill, sayAll } from "./strings.js";
import { View } from "./view.js";
import { Question } from "./question.js";
import { showGate, showHealth, showHistory, showLost } from "./panels.js";

const $ = (id) => document.getElementById(id);
const view = new View();
const question = new Question(view, post);
let state = null, socket = null;

function start() {
  document.documentElement.lang = STRINGS.lang;
  const texts = {
    title: STRINGS.title, "no-picture": STRINGS.noPicture, draw: STRINGS.draw, "draw-hint": STRINGS.drawHint, undo: STRINGS.undo,
    send: STRINGS.send, "who-label": STRINGS.who, "sign-out": STRINGS.signOut, "scene-title": STRINGS.sceneTitle, reset: STRINGS.reset, hold: STRINGS.hold, "keys-title": STRINGS.keysTitle,
  };
  for (const [id, words] of Object.entries(texts)) $(id).textContent = words;
  for (const [key, meaning] of Object.entries(STRINGS.keys)) {
    const term = document.createElement("dt"), what = document.createElement("dd");
    term.textContent = STRINGS.keyNames[key] || key; what.textContent = meaning;
    $("keys").append(term, what);
  }
  for (const name of Object.keys(STRINGS.layers)) {
    const button = document.createElement("button");
    button.type = "button"; button.id = "layer-" + name; button.textContent = STRINGS.layers[name];
    button.addEventListener("click", () => toggle(name));
    $("layers").append(button);
  }
  $("who").value = localStorage.getItem("person") || "";
  $("who").addEventListener("change", () => localStorage.setItem("person", $("who").value.trim()));
  $("hold").addEventListener("click", hold);
  $("sign-out").addEventListener("click", signOut);
  $("reset").addEventListener("click", () => post("command", { command: "reset" }));
  document.addEventListener("keydown", onKey);
  // the attention of a picture is there only if it was wanted when the picture came, so the wish is remembered
  Object.assign(view.layers, JSON.parse(localStorage.getItem("layers") || "{}"), { live: false });
  showLayers();
  connect();
}

function connect() {
  socket = new WebSocket((location.protocol === "https:" ? "wss://" : "ws://") + location.host + "/live");
  socket.onopen = () => socket.send(JSON.stringify({ heat: view.layers.heat }));
  socket.onmessage = (event) => { state = JSON.parse(event.data); show(); };
  socket.onclose = () => { showLost(); askToSignIn(); setTimeout(connect, 1000); };
}

// Without a session the server serves the sign-in in place of this page.
async function askToSignIn() {
  const response = await fetch("session").catch(() => null);
  if (response && response.status === 401) location.reload();
}

async function signOut() {
  await fetch("sign_out", { method: "POST", headers: { "Content-Type": "application/json" }, body: "{}" }).catch(() => null);
  location.reload();
}

// A name that was proved at the sign-in is shown; otherwise one is asked for, and the page says that it is not checked.
function showOperator({ name, checked, signed_in }) {
  $("who").hidden = checked; $("sign-out").hidden = !signed_in;
  $("who-label").textContent = checked ? fill(STRINGS.signedIn, { name }) : STRINGS.who;
}

function show() {
  if (!state) return;
  document.body.classList.toggle("old", !state.connected);
  showGate(state); showOperator(state.operator);
  question.update(state.request || null, state.answered);
  view.update(state.scene || null, state.request || null, state.heat);
  showHealth(state.health);
  showHistory(state.history);
}

function toggle(layer) {
  view.layers[layer] = !view.layers[layer];
  localStorage.setItem("layers", JSON.stringify(view.layers));
  if (layer === "heat" && socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ heat: view.layers.heat }));
  showLayers(); show();
}

function showLayers() {
  for (const [name, on] of Object.entries(view.layers)) $("layer-" + name).setAttribute("aria-pressed", String(on));
}

function hold() {
  const held = Boolean(state && state.gate && state.gate.held);
  post("command", { command: held ? "release" : "hold" });
}

async function post(where, body) {
  const person = $("who").hidden ? "" : $("who").value.trim();
  // nothing delays a hold
  if (!person && !$("who").hidden && body.command !== "hold") { $("message").textContent = STRINGS.whoMissing; $("who").focus(); return; }
  if (person) localStorage.setItem("person", person);
  try {
    const response = await fetch(where, {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ person, ...body }),
    });
    const reply = await response.json();
    const said = where === "answer" ? STRINGS.sent : "";
    $("message").textContent = reply.accepted ? said : STRINGS.refused + (response.ok ? sayAll(reply.reasons) : STRINGS.replies[response.status] || String(response.status));
  } catch {
    $("message").textContent = STRINGS.refused + STRINGS.unreachable;
  }
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target === $("who")) { if (event.key === "Enter") $("who").blur(); return; }
  if (act(event)) event.preventDefault();
}

// Does what the key says; false when it means nothing here, so that the browser may use it.
function act(event) {
  if (view.key(event)) return true;
  const onButton = event.target instanceof HTMLButtonElement || event.target.tagName === "SUMMARY";
  const says = {
    p: () => question.say("remove"), l: () => question.say("keep"), n: () => question.say("not_there"), d: () => question.toggleDrawing(),
    r: () => question.sayOfScene("rescan"), c: () => question.sayOfScene("clean"), s: () => question.sayOfScene("skip_laptop"),
    f: () => question.sayOfScene("fault"), h: hold, b: () => toggle("boxes"), k: () => toggle("hulls"), a: () => toggle("heat"), v: () => toggle("live"),
    u: () => question.undo(),
    arrowup: () => question.choose(view.focus - 1), arrowdown: () => question.choose(view.focus + 1),
  };
  const key = event.key.toLowerCase();
  if (/^[1-9]$/.test(key)) question.choose(Number(key) - 1);
  else if (key === "enter" && !onButton) question.send();
  else if (says[key]) says[key]();
  else return false;
  return true;
}

start();
