// The open question: its objects, what the person says to each, and sending it. What is not sent yet survives a reload.
import { STRINGS, fill, say } from "./strings.js";
import { sameBox } from "./view.js";

const $ = (id) => document.getElementById(id);
const ANSWERS = ["remove", "keep", "not_there"];

export class Question {
  constructor(view, post) {
    this.view = view; this.post = post;
    this.request = null; this.scene = "none"; this.waiting = false;
    view.onDrawn = () => this.takeDrawn();
    for (const key of Object.keys(STRINGS.scenes)) {
      const button = choice(STRINGS.scenes[key], () => this.sayOfScene(key));
      button.dataset.key = key;
      $("scene").append(button);
    }
    $("draw").addEventListener("click", () => this.toggleDrawing());
    $("undo").addEventListener("click", () => this.undo());
    $("send").addEventListener("click", () => this.send());
    this.show();
  }

  update(request, answered) {
    if ((request && request.request_id) === (this.request && this.request.request_id)) return;
    const before = this.request;
    this.request = request; this.scene = "none";
    this.view.drawn = []; this.view.choices = request ? request.objects.map(() => null) : []; this.view.focus = request && request.objects.length ? 0 : -1;
    this.view.draw(false);
    const kept = request && recall(request.request_id);
    if (kept && kept.choices.length === request.objects.length) { this.view.choices = kept.choices; this.view.drawn = kept.drawn; this.scene = kept.scene; }
    if (request) text("message", "");
    else if (before && answered && answered.request_id === before.request_id) text("message", fill(STRINGS.answeredBy, { name: answered.person }));
    this.show();
  }

  show() {
    const request = this.request;
    text("asked", request ? STRINGS.question : STRINGS.nothingAsked);
    text("todo", request ? request.objects.length ? "" : STRINGS.toLook : STRINGS.nothingAskedHint);
    $("panel").classList.toggle("open", Boolean(request));
    $("actions").hidden = $("send").hidden = !request;
    $("reasons").replaceChildren(...(request ? request.reasons.map(reasonLine) : []));
    $("objects").replaceChildren(...(request ? request.objects.map((object, index) => this.item(object, index)) : []));
    this.mark(); this.showDrawing();
  }

  item(object, index) {
    const item = document.createElement("li");
    const name = document.createElement("strong");
    name.textContent = (index + 1) + "  " + STRINGS.object + ": " + (STRINGS.labels[object.label] || "?");
    const row = document.createElement("div");
    row.className = "row";
    for (const key of ANSWERS) {
      const button = choice(STRINGS.answers[key], () => { this.view.focus = index; this.say(key); });
      button.dataset.key = key;
      row.append(button);
    }
    item.append(name, ...object.reasons.map(reasonLine), row);
    item.addEventListener("pointerdown", () => this.choose(index));
    return item;
  }

  mark() {
    [...$("objects").children].forEach((item, index) => {
      item.className = (this.view.choices[index] ? "" : "open") + (index === this.view.focus ? " focus" : "");
      for (const button of item.querySelectorAll("button")) press(button, button.dataset.key === this.view.choices[index]);
    });
    for (const button of $("scene").children) press(button, button.dataset.key === this.scene);
    this.view.redraw();
  }

  showDrawing() {
    press($("draw"), this.view.drawing);
    $("draw-hint").hidden = !this.view.drawing;
    $("undo").hidden = !this.view.drawn.length;
  }

  choose(index) {
    if (!this.request || index < 0 || index >= this.request.objects.length) return;
    this.view.focus = index;
    $("objects").children[index].scrollIntoView({ block: "nearest" });
    this.mark();
  }

  say(answer) {
    if (!this.request || this.view.focus < 0) return;
    this.decide(this.view.focus, answer);
    this.mark(); this.keep();
  }

  // The gate takes one answer for one place, however many objects lie there, and none for the whole picture beside something to
  // peel: what is said last counts.
  decide(index, answer) {
    const { objects } = this.request, place = objects[index].box;
    objects.forEach((object, other) => { if (other === index || sameBox(object.box, place)) this.view.choices[other] = answer; });
    this.view.drawn = this.view.drawn.filter((box) => !sameBox(box, place));
    if (answer === "remove") this.scene = "none";
  }

  takeDrawn() {
    const { objects } = this.request;
    for (const box of this.view.drawn) {
      const index = objects.findIndex((object) => sameBox(object.box, box));
      if (index >= 0) this.decide(index, "remove");
    }
    if (this.view.drawn.length) this.scene = "none";
    this.mark(); this.showDrawing(); this.keep();
  }

  sayOfScene(key) {
    if (!this.request) return;
    this.scene = this.scene === key ? "none" : key;
    if (this.scene !== "none") {
      this.view.choices = this.view.choices.map((said) => (said === "remove" ? null : said));
      this.view.drawn = [];
    }
    this.mark(); this.showDrawing(); this.keep();
  }

  undo() { this.view.drawn.pop(); this.view.onDrawn(); this.view.redraw(); }

  toggleDrawing() { this.view.draw(!this.view.drawing); this.showDrawing(); }

  keep() {
    if (this.request) sessionStorage.setItem("answer", JSON.stringify({ id: this.request.request_id, choices: this.view.choices, drawn: this.view.drawn, scene: this.scene }));
  }

  async send() {
    const { request, view } = this;
    if (!request || this.waiting) return;
    if (this.scene === "none" && view.choices.includes(null)) { text("message", STRINGS.openObjects); return; }
    if (this.scene === "none" && !view.choices.length && !view.drawn.length) { text("message", STRINGS.nothingSaid); return; }
    const answers = request.objects.map((object, index) => ({ answer: view.choices[index], ...object.box })).filter((said) => said.answer);
    answers.push(...view.drawn.map((box) => ({ answer: "missed", ...box })));
    this.waiting = true;
    await this.post("answer", { request_id: request.request_id, scene: this.scene, answers });
    this.waiting = false;
  }
}

function recall(id) {
  const kept = JSON.parse(sessionStorage.getItem("answer") || "null");
  return kept && kept.id === id ? kept : null;
}

function reasonLine(reason) {
  const line = document.createElement("div");
  line.className = "why"; line.textContent = say(reason);
  return line;
}

function choice(label, act) {
  const button = document.createElement("button");
  button.type = "button"; button.textContent = label; press(button, false);
  button.addEventListener("click", act);
  return button;
}

function press(button, on) { button.setAttribute("aria-pressed", String(on)); }

function text(id, value) { $(id).textContent = value; }
