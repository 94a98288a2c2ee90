/* SPDX-License-Identifier: Apache-2.0 */
// The operator's page. Everything that comes from the cell is written with textContent: nothing of it can become markup.
import { STRINGS, fill, plain, speak } from "./strings.js";
import { View } from "./view.js";
import { Question } from "./question.js";
import { acts, askRestart, showGate, showHealth, showHistory, showStale, toDo } from "./panels.js";

const $ = (id) => document.getElementById(id);
const STALE_MS = 3000,
  ANSWER_MS = 2000,
  RETRY_MS = 1000,
  CHECK_MS = 250,
  BACK_MS = 20000;
const view = new View();
const question = new Question(view, post);
// A message outlives a change to one of these: the arm waits, and what was said to happen next has not happened yet.
const WAITING = ["blocked", "waits", "monitoring"];
let told = { of: "", bad: false },
  shown = ""; // the command that the message is about, and the state that it was told in
let state = null,
  socket = null,
  commands = 0,
  holdAgain = false,
  contact = null,
  keys = true;
// On the page's clock, ms: the last attempt to connect, the last message, when what it says was so, and the least that a message
// was behind the cell's clock, the offset of the two clocks.
let triedAt = 0,
  heardAt = 0,
  trueAt = performance.now(),
  offset = Infinity;

function start() {
  speak($("language"));
  const texts = {
    title: STRINGS.title,
    "no-picture": STRINGS.noPicture,
    send: STRINGS.send,
    "who-label": STRINGS.who,
    "scene-title": STRINGS.sceneTitle,
    reset: STRINGS.reset,
    "hold-name": STRINGS.hold,
    "hold-hint": STRINGS.holdHint,
    "look-first": STRINGS.lookFirst,
    "who-hint": STRINGS.whoHint,
    "restart-hint": STRINGS.resetAlarmHint,
    "restart-begin": STRINGS.resetAlarm,
    "restart-asked": STRINGS.resetAlarmAsk,
    "restart-yes": STRINGS.resetAlarmYes,
    "restart-no": STRINGS.resetAlarmNo,
    all: STRINGS.allStickers,
    "sure-no": STRINGS.sureNo,
    release: STRINGS.release,
    "keys-title": STRINGS.keysTitle,
    "keys-on": STRINGS.keysOn,
  };
  for (const [id, words] of Object.entries(texts)) $(id).textContent = words;
  $("view").setAttribute("aria-label", STRINGS.picture);
  for (const [key, meaning] of Object.entries(STRINGS.keys)) {
    const term = document.createElement("dt"),
      what = document.createElement("dd");
    term.textContent = STRINGS.keyNames[key] || key;
    what.textContent = meaning;
    $("keys").append(term, what);
  }
  for (const name of Object.keys(STRINGS.layers)) {
    const button = document.createElement("button");
    button.type = "button";
    button.id = "layer-" + name;
    button.textContent = STRINGS.layers[name];
    button.title = STRINGS.layerHints[name];
    button.addEventListener("click", () => toggle(name));
    $("layers").append(button);
  }
  $("who").value ||= localStorage.getItem("person") || ""; // somebody may have begun to type before the words came
  $("who").addEventListener("change", () => localStorage.setItem("person", $("who").value.trim()));
  for (const name of ["hold", "release", "reset"]) $(name).addEventListener("click", () => command(name));
  $("restart-begin").addEventListener("click", () => askRestart(true));
  $("restart-no").addEventListener("click", () => askRestart(false));
  $("restart-yes").addEventListener("click", () => {
    askRestart(false);
    command("reset", STRINGS.resetAlarm);
  });
  for (const fold of $("folds").children)
    fold.addEventListener("toggle", () => {
      if (fold.open) fold.scrollIntoView({ block: "start" });
    });
  $("keys-on").addEventListener("click", () => useKeys(!keys));
  useKeys(localStorage.getItem("keys") !== "off");
  document.addEventListener("keydown", onKey);
  document.addEventListener("visibilitychange", watch);
  // the saliency of an image is there only if it was wanted when the image came, so the wish is remembered
  Object.assign(view.layers, JSON.parse(localStorage.getItem("layers") || "{}"), { live: false });
  showLayers();
  connect();
  setInterval(watch, CHECK_MS);
}

function connect() {
  if (socket) {
    socket.onclose = socket.onmessage = null;
    socket.close();
  }
  triedAt = performance.now();
  offset = Infinity;
  socket = new WebSocket((location.protocol === "https:" ? "wss://" : "ws://") + location.host + "/live");
  socket.onopen = () => socket.send(JSON.stringify({ heat: view.layers.heat }));
  socket.onmessage = (event) => receive(event.data);
  socket.onclose = () => {
    trueAt = Math.min(trueAt, performance.now() - STALE_MS);
    watch();
    askToSignIn();
  };
}

// What cannot be shown covers the page: it would stand there as if the message before were still true.
function receive(message) {
  try {
    state = JSON.parse(message);
    hear();
    show();
  } catch (error) {
    trueAt = Math.min(trueAt, performance.now() - STALE_MS);
    watch();
    throw error;
  }
}

// Without a session the server serves the sign-in in place of this page.
async function askToSignIn() {
  const response = await fetch("session").catch(() => null);
  if (response && response.status === 401) location.reload();
}

// A name that the proxy before the page has proved is shown; otherwise one is asked for, and the page says that it is not checked.
function showOperator({ name, checked }) {
  const words = checked ? fill(STRINGS.signedIn, { name }) : STRINGS.who;
  $("who").hidden = $("who-hint").hidden = checked;
  if ($("who-label").textContent !== words) $("who-label").textContent = words;
}

// A message on a slow link is old news: it comes later than the quickest one did. 1 ms per s is left to the drift of the clocks.
function hear() {
  const now = performance.now(),
    behind = now - state.sent_s * 1000;
  offset = Math.min(behind, offset + (now - heardAt) / 1000);
  heardAt = now;
  trueAt = now - (behind - offset);
  watch();
  const before = contact;
  contact = $("stale").hidden && state.connected;
  if (contact && before === false) showBack(STRINGS.contactBack);
  else if (!contact) showBack("");
  if (holdAgain) {
    holdAgain = false;
    command("hold");
  }
}

// What is shown is true only while messages come: a stopped process closes no connection.
function watch() {
  const now = performance.now(),
    stale = now - trueAt >= STALE_MS;
  showStale(stale, now - trueAt);
  if (stale) forget("lost");
  if (stale && contact) {
    contact = false;
    showBack("");
  }
  if (stale && now - triedAt >= (socket.readyState === WebSocket.CLOSED ? RETRY_MS : STALE_MS)) connect();
}

function show() {
  forget(showGate(state));
  showOperator(state.operator);
  question.update(state, toDo(state));
  view.update(state, acts(state));
  showHealth(state);
  showHistory(state.history);
}

// A message goes when the state goes that it is about. That a hold is not done stays until it is.
function forget(now) {
  if (now === shown) return;
  shown = now;
  const held = Boolean(state.gate?.held),
    over = told.of === "hold" ? held === told.bad : !WAITING.includes(now);
  if (over) {
    $("said").textContent = "";
    $("said").classList.remove("bad");
  }
  if (!WAITING.includes(now)) question.forget(now);
}

function toggle(layer) {
  view.layers[layer] = !view.layers[layer];
  localStorage.setItem("layers", JSON.stringify(view.layers));
  if (layer === "heat" && socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ heat: view.layers.heat }));
  showLayers();
  if (state) show();
}

function showLayers() {
  for (const [name, on] of Object.entries(view.layers)) $("layer-" + name).setAttribute("aria-pressed", String(on));
}

function command(name, words = STRINGS[name]) {
  return post("command", words, { command: name }, $("said"), () => next(name));
}

// What happens after a command that was accepted; after a release from a fault nothing does.
function next(name) {
  const unsure = name === "hold" && !state?.connected ? STRINGS.holdUnsure : "";
  const fault = name === "release" && state && state.gate && state.gate.state === "fault";
  return [STRINGS.done, fault ? "" : STRINGS.next[name], unsure].filter(Boolean).join(" ");
}

// Beside what became of a command, which may be told at the same time; for a while.
function showBack(words) {
  if ($("back").textContent === words) return;
  $("back").textContent = words;
  if (words) setTimeout(() => showBack(""), BACK_MS);
}

// Sends `body` and says in `line` what became of it, under the name `what`; `done`: the words when it was accepted. Returns whether it was. Nobody needs a name
// to hold the arm, and who has proved one enters none.
async function post(where, what, body, line, done) {
  const holds = body.command === "hold",
    named = $("who").hidden,
    person = named ? "" : $("who").value.trim();
  const number = ++commands;
  const show = (words, bad) => {
    if (number !== commands) return;
    line.textContent = words;
    line.classList.toggle("bad", bad);
    if (line === $("said")) told = { of: body.command, bad };
  };
  const tell = (words, bad = false) => show(what + ": " + words, bad);
  const wanted = !person && !named && !holds;
  $("who").classList.toggle("wanted", wanted);
  if (wanted) {
    show(STRINGS.whoMissing, true);
    $("who").focus();
    return false;
  }
  if (person) localStorage.setItem("person", person);
  tell(STRINGS.sending);
  const parameters = new URLSearchParams();
  // A hold is right however late it comes. Anything else must not come true after the page has said that it is not done.
  if (!holds) parameters.set("until", state ? ((performance.now() - offset + ANSWER_MS) / 1000).toFixed(3) : 0);
  let accepted = false;
  const patience = new AbortController(),
    timer = setTimeout(() => patience.abort(), ANSWER_MS);
  try {
    const response = await fetch(where + "?" + parameters, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ person, ...body }),
      signal: patience.signal,
    });
    const reply = await response.json();
    accepted = reply.accepted === true;
    if (accepted) where === "answer" ? show(done(), false) : tell(done());
    else
      tell(
        STRINGS.notDone +
          (response.ok ? plain(reply.reasons) : STRINGS.replies[response.status] || String(response.status)) +
          (holds ? ". " + STRINGS.holdUnsure : ""),
        true,
      );
  } catch {
    tell(STRINGS.notDone + fill(holds ? STRINGS.noReplyToHold : STRINGS.noReply, { seconds: ANSWER_MS / 1000 }), true);
    holdAgain = holdAgain || holds;
  }
  clearTimeout(timer);
  return accepted;
}

// Keys that write something can be switched off: who speaks to the machine, or leans on it, presses them unmeant (WCAG 2.1.4).
function useKeys(on) {
  keys = on;
  localStorage.setItem("keys", on ? "on" : "off");
  $("keys-on").setAttribute("aria-pressed", String(on));
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || (!keys && event.key.length === 1)) return;
  if (event.target === $("who")) {
    if (event.key === "Enter") $("who").blur();
    return;
  }
  if (act(event)) event.preventDefault();
}

// Does what the key says; false when it means nothing here, so that the browser may use it.
function act(event) {
  const key = event.key.toLowerCase();
  if (key === "h") {
    if (!event.repeat) command("hold");
    return true;
  }
  if (!$("stale").hidden) return false;
  if (view.key(event)) return true;
  const onButton = event.target instanceof HTMLButtonElement || event.target.tagName === "SUMMARY";
  const says = {
    p: () => question.say("remove"),
    l: () => question.say("keep"),
    n: () => question.say("not_there"),
    d: () => question.toggleDrawing(true),
    r: () => question.sayOfScene("rescan"),
    c: () => question.sayOfScene("clean"),
    s: () => question.sayOfScene("skip_laptop"),
    f: () => question.sayOfScene("fault"),
    b: () => toggle("boxes"),
    k: () => toggle("hulls"),
    a: () => toggle("heat"),
    v: () => toggle("live"),
    u: () => question.takeBack(view.drawn.length - 1),
    arrowup: () => question.choose(view.focus - 1),
    arrowdown: () => question.choose(view.focus + 1),
  };
  if (/^[1-9]$/.test(key)) question.choose(Number(key) - 1);
  else if (key === "enter" && !onButton) question.send();
  else if (says[key]) says[key]();
  else return false;
  return true;
}

start();
