"use strict";
// Everything that comes from the cell is written with textContent: nothing of it can become markup.
const $ = (id) => document.getElementById(id);
const token = new URLSearchParams(location.search).get("token");
const query = token ? "?token=" + encodeURIComponent(token) : "";
let request = null;      // the open question
let choices = [];        // one answer per object of the question
let drawn = [];          // missed stickers, in pixels of the image
let sceneAnswer = "none";
let drag = null;
let shownPicture = -1;

function text(id, value) { $(id).textContent = value; }

function start() {
  document.title = STRINGS.title;
  text("title", STRINGS.title); text("no-picture", STRINGS.noPicture); text("draw-hint", STRINGS.draw);
  text("undo", STRINGS.undo); text("send", STRINGS.send); text("who-label", STRINGS.who);
  $("who").value = localStorage.getItem("person") || "";
  for (const [key, label] of [["rescan", STRINGS.rescan], ["clean", STRINGS.clean], ["skip_laptop", STRINGS.skip], ["fault", STRINGS.fault]]) {
    const button = choice(label, () => { sceneAnswer = sceneAnswer === key ? "none" : key; pressScene(); });
    button.dataset.key = key;
    $("scene").append(button);
  }
  $("send").addEventListener("click", send);
  $("undo").addEventListener("click", () => { drawn.pop(); redraw(); });
  $("picture").addEventListener("load", redraw);
  window.addEventListener("resize", redraw);
  listenToDrawing();
  connect();
}

function choice(label, act) {
  const button = document.createElement("button");
  button.type = "button"; button.textContent = label; button.setAttribute("aria-pressed", "false");
  button.addEventListener("click", act);
  return button;
}

function pressScene() {
  for (const button of $("scene").children) button.setAttribute("aria-pressed", String(button.dataset.key === sceneAnswer));
}

function connect() {
  const socket = new WebSocket((location.protocol === "https:" ? "wss://" : "ws://") + location.host + "/live" + query);
  socket.onmessage = (event) => show(JSON.parse(event.data));
  socket.onclose = () => {
    alarm(STRINGS.disconnected);
    stateBox("lost", STRINGS.states.unknown);
    setTimeout(connect, 1000);
  };
}

function alarm(words) { text("alarm", words); $("alarm").hidden = !words; }

function stateBox(kind, words) { $("state").className = "state " + kind; text("state", words); }

function show(state) {
  alarm(state.connected ? "" : STRINGS.lost);
  const gate = state.gate || { state: "unknown", text: "" };
  stateBox(state.connected ? gate.state : "lost", STRINGS.states[state.connected ? gate.state : "unknown"]);
  text("why", gate.text);
  text("laptop", state.workpiece ? STRINGS.laptop + " " + state.workpiece : "");
  if (state.picture !== undefined && state.picture !== shownPicture) {
    shownPicture = state.picture;
    $("no-picture").hidden = true;
    $("picture").src = "picture.jpg?" + new URLSearchParams(token ? { token, v: state.picture } : { v: state.picture });
  }
  const next = state.request || null;
  if ((next && next.request_id) !== (request && request.request_id)) {
    request = next; choices = next ? next.objects.map(() => null) : []; drawn = []; sceneAnswer = "none";
    showRequest();
  }
}

function showRequest() {
  text("asked", request ? STRINGS.question : STRINGS.nothingAsked);
  text("request", request ? request.text : STRINGS.nothingAskedHint);
  $("actions").hidden = !request;
  $("objects").replaceChildren(...(request ? request.objects.map(objectItem) : []));
  if (request) text("message", "");
  pressScene(); redraw();
}

function objectItem(object, index) {
  const item = document.createElement("li");
  item.className = "open";
  const name = document.createElement("strong");
  name.textContent = STRINGS.object + " " + object.id + " (" + (STRINGS.labels[object.label] || "?") + ")";
  const row = document.createElement("div");
  row.className = "row";
  for (const [key, label] of [["remove", STRINGS.remove], ["keep", STRINGS.keep], ["not_there", STRINGS.notThere]]) {
    row.append(choice(label, (event) => {
      choices[index] = key;
      item.className = "";
      for (const other of row.children) other.setAttribute("aria-pressed", String(other === event.currentTarget));
      redraw();
    }));
  }
  item.append(name, ...object.reasons.map((reason) => {
    const line = document.createElement("div");
    line.className = "why"; line.textContent = reason;
    return line;
  }), row);
  return item;
}

function redraw() {
  const canvas = $("overlay"), picture = $("picture");
  canvas.width = canvas.clientWidth; canvas.height = canvas.clientHeight;
  $("undo").hidden = !drawn.length;
  if (!picture.naturalWidth) return;
  const scale = canvas.width / picture.naturalWidth, pen = canvas.getContext("2d");
  pen.lineWidth = 4; pen.font = "bold 18px system-ui, sans-serif";
  const frame = (box, colour, label) => {
    pen.strokeStyle = pen.fillStyle = colour;
    pen.strokeRect(box.x1 * scale, box.y1 * scale, (box.x2 - box.x1) * scale, (box.y2 - box.y1) * scale);
    pen.fillText(label, box.x1 * scale + 4, Math.max(20, box.y1 * scale - 8));
  };
  if (request) request.objects.forEach((object, i) => frame(object.box, choices[i] ? "#56b4e9" : "#e69f00", STRINGS.object + " " + object.id));
  for (const box of drawn) frame(box, "#cc79a7", STRINGS.missed);
  if (drag) frame(drag, "#cc79a7", "");
}

function listenToDrawing() {
  const canvas = $("overlay");
  const at = (event) => {
    const scale = $("picture").naturalWidth / canvas.clientWidth, frame = canvas.getBoundingClientRect();
    return { x: (event.clientX - frame.left) * scale, y: (event.clientY - frame.top) * scale };
  };
  let from = null;
  canvas.addEventListener("pointerdown", (event) => {
    if (!request || !$("picture").naturalWidth) return;
    from = at(event); canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!from) return;
    const to = at(event);
    drag = { x1: Math.min(from.x, to.x), y1: Math.min(from.y, to.y), x2: Math.max(from.x, to.x), y2: Math.max(from.y, to.y) };
    redraw();
  });
  canvas.addEventListener("pointerup", () => {
    if (drag && drag.x2 - drag.x1 > 5 && drag.y2 - drag.y1 > 5) drawn.push(drag);
    from = drag = null; redraw();
  });
}

async function send() {
  const person = $("who").value.trim();
  if (!person) { text("message", STRINGS.whoMissing); $("who").focus(); return; }
  if (sceneAnswer === "none" && choices.includes(null)) { text("message", STRINGS.openObjects); return; }
  localStorage.setItem("person", person);
  const answers = request.objects.map((object, i) => ({ answer: choices[i], ...object.box })).filter((a) => a.answer);
  answers.push(...drawn.map((box) => ({ answer: "missed", ...box })));
  try {
    const response = await fetch("answer" + query, {
      method: "POST", headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ request_id: request.request_id, person, scene: sceneAnswer, answers }),
    });
    const reply = await response.json();
    text("message", reply.accepted ? STRINGS.sent : STRINGS.refused + (reply.message || JSON.stringify(reply.detail)));
  } catch (error) {
    text("message", STRINGS.refused + error.message);
  }
}

start();
