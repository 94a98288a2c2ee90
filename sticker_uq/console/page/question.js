/* SPDX-License-Identifier: Apache-2.0 */
// The open question: its objects, what the person says to each, and sending it. What is not sent yet survives a reload.
import { STRINGS, fill, plain } from "./strings.js";
import { details } from "./panels.js";
import { DRAWN, letter, sameBox } from "./view.js";

const $ = (id) => document.getElementById(id);
const ANSWERS = ["remove", "keep", "not_there"];

export class Question {
  constructor(view, post) {
    this.view = view;
    this.post = post;
    this.request = null;
    this.scene = "none";
    this.places = [];
    this.all = false;
    this.waiting = false;
    this.connected = true;
    this.held = this.untilRelease = false;
    // what to do apart from the question; the question that was answered here last; what the last answer said of the picture
    this.todo = this.answered = this.last = "";
    view.accept = (box) => this.addDrawn(box);
    view.onPick = (point) => this.pick(point);
    view.onTool = view.onPictured = () => this.mark();
    for (const [key, words] of Object.entries(STRINGS.scenes)) {
      const button = choice(words, () => this.sayOfScene(key)),
        hint = document.createElement("small");
      hint.textContent = STRINGS.sceneHints[key];
      button.dataset.key = key;
      button.append(hint);
      $("scene").append(button);
    }
    // a click without a pointer comes from a key
    $("draw").addEventListener("click", (event) => this.toggleDrawing(event.detail === 0));
    $("send").addEventListener("click", () => this.send());
    $("sure-no").addEventListener("click", () => this.ask([]));
    $("sure-yes").addEventListener("click", () => this.sure());
    $("all").addEventListener(
      "click",
      () =>
        this.blind ||
        this.ask(
          this.request.objects.map(({ box }) => box),
          true,
        ),
    );
    this.show();
  }

  // Without the supervisor (`connected`) a question is neither shown as open nor as none. `todo`: what to do apart from the question.
  update({ request = null, answered, connected, gate }, todo) {
    const held = Boolean(gate?.held),
      released = this.held && !held && this.untilRelease;
    this.held = held;
    if (released) {
      this.untilRelease = false;
      this.hint("");
    }
    if (connected !== this.connected || todo !== this.todo) {
      this.connected = connected;
      this.todo = todo;
      for (const id of ["panel", "foot"]) $(id).classList.toggle("old", !connected);
      this.head();
    }
    if (request?.request_id === this.request?.request_id) return;
    const before = this.request;
    this.request = request;
    this.scene = "none";
    this.ask([]);
    this.view.drawn = [];
    this.view.choices = request ? request.objects.map(() => null) : [];
    this.view.focus = request?.objects.length ? 0 : -1;
    this.view.request = request;
    this.view.draw(false);
    const kept = request && recall(request.request_id);
    if (kept && kept.choices.length === request.objects.length) {
      this.view.choices = kept.choices;
      this.view.drawn = kept.drawn;
      this.scene = kept.scene;
    }
    if (before && answered && answered.request_id === before.request_id)
      this.hint(this.taken(answered.scene, this.answered === before.request_id ? "" : answered.person));
    else if (!before || !this.waiting) this.hint("");
    this.show();
  }

  head() {
    const { request, connected } = this;
    text("asked", !connected ? STRINGS.askedUnknown : request ? STRINGS.question : this.todo ? STRINGS.whatToDo : STRINGS.nothingAsked);
    text("todo", this.todo);
    text("look", request ? this.instruction : connected && !this.todo ? STRINGS.nothingAskedHint : "");
    $("panel").classList.toggle("open", Boolean(request) && connected);
  }

  // What the question wants of the whole picture.
  get instruction() {
    const { objects, reasons } = this.request;
    if (!objects.length) return this.missed.length ? STRINGS.toLookMissed : STRINGS.toLook;
    return reasons.some(({ code }) => code === "spot_check") ? STRINGS.toLookChecked : "";
  }

  // Where the question asks whether a sticker was missed.
  get missed() {
    return this.request.reasons.filter((reason) => reason.box && reason.code !== "novel_place").map((reason) => reason.box);
  }

  // That an answer was taken, whose it was (empty: of who stands here), and what happens next.
  taken(scene, name) {
    this.last = scene;
    this.untilRelease = this.held && !["skip_laptop", "fault"].includes(scene);
    const next = STRINGS.afterAnswer[this.untilRelease ? "held" : scene] || "";
    return (name ? fill(STRINGS.answerTakenFrom, { name }) : STRINGS.answerTaken) + " " + next;
  }

  show() {
    const request = this.request;
    this.head();
    $("panel").scrollTop = 0;
    $("actions").hidden = $("send").hidden = !request;
    $("all").hidden = !request || request.objects.length < 2;
    $("reasons").className = "said";
    $("reasons").replaceChildren(...(request ? whys(request.reasons) : []));
    $("objects").replaceChildren(...(request ? request.objects.map((object, index) => this.item(object, index)) : []));
    this.mark();
    if (request) this.scrollToAnswers();
  }

  // On a small screen the picture stands above the question: as much of it stays as the first answers leave.
  scrollToAnswers() {
    const first = $("objects").firstElementChild || $("look"); // without objects it is the picture that is answered on
    if (getComputedStyle($("panel")).overflowY === "visible") first.scrollIntoView({ block: "nearest" });
  }

  item(object, index) {
    const item = document.createElement("li"),
      words = document.createElement("div"),
      name = document.createElement("strong"),
      row = document.createElement("div");
    name.textContent = index + 1 + "  " + fill(STRINGS.object, { label: STRINGS.labels[object.label] || "?" });
    name.id = "object-" + index;
    row.className = "row";
    row.setAttribute("role", "group");
    row.setAttribute("aria-labelledby", name.id);
    for (const key of ANSWERS) {
      const button = choice(STRINGS.answers[key], () => {
        this.view.focus = index;
        this.say(key);
      });
      button.dataset.key = key;
      const means = document.createElement("small"),
        cell = document.createElement("div");
      means.textContent = STRINGS.answerHints[key];
      means.id = "means-" + index + "-" + key;
      button.setAttribute("aria-describedby", means.id);
      cell.append(button, means);
      row.append(cell);
    }
    words.className = "said";
    words.append(name, ...whys(object.reasons));
    item.append(this.view.crop(object.box), words, row);
    // without scrolling: the button under the finger would move away
    item.addEventListener("pointerdown", () => {
      this.view.focus = index;
      this.mark();
    });
    return item;
  }

  drawnItem(box, index) {
    const item = document.createElement("li"),
      words = document.createElement("div"),
      name = document.createElement("strong");
    name.textContent = letter(index) + "  " + STRINGS.answers.missed;
    const back = choice(STRINGS.takeBack, () => this.takeBack(index));
    back.removeAttribute("aria-pressed");
    back.setAttribute("aria-label", STRINGS.takeBack + " " + letter(index));
    words.className = "row";
    words.append(name, back);
    item.append(this.view.crop(box, DRAWN), words);
    return item;
  }

  mark() {
    const { view } = this,
      whole = this.scene !== "none",
      blind = String(!view.known);
    for (const button of [$("draw"), $("all"), ...$("objects").querySelectorAll(".row button")])
      button.setAttribute("aria-disabled", blind);
    [...$("objects").children].forEach((item, index) => {
      item.className = (view.choices[index] || whole ? "" : "open") + (index === view.focus && !whole ? " focus" : "");
      for (const button of item.querySelectorAll(".row button")) press(button, button.dataset.key === view.choices[index]);
    });
    $("drawn").replaceChildren(...view.drawn.map((box, index) => this.drawnItem(box, index)));
    for (const id of ["objects", "drawn"]) $(id).classList.toggle("off", whole);
    for (const button of $("scene").children) {
      press(button, button.dataset.key === this.scene);
      button.setAttribute("aria-disabled", String(button.dataset.key === "clean" && (this.peels || !view.known)));
    }
    text("draw", view.drawing ? STRINGS.stopDrawing : STRINGS.draw);
    press($("draw"), view.drawing);
    $("send").setAttribute("aria-disabled", String(Boolean(this.missing)));
    text("send", whole ? fill(STRINGS.sendScene, { answer: STRINGS.scenes[this.scene] }) : STRINGS.send);
    if (this.request && !this.told) text("message", this.missing);
    view.whole = whole;
    view.redraw();
  }

  // What looks like a sticker to the machine, in the picture in question and in the newest one, each place once: that no sticker is
  // left must be meant of each.
  get stickers() {
    const seen = [this.request.objects, this.request.scene?.objects, this.view.scene?.objects].flatMap((objects) => objects || []);
    const like = seen.filter((object) => object.must_mention).map(({ box }) => box);
    return like.filter((box, index) => !like.slice(0, index).some((other) => sameBox(other, box)));
  }

  // Asks whether the answer means these places, too, or, of `all` objects, whether they are stickers; none: asks nothing.
  ask(places, all = false) {
    const within = $("sure").contains(document.activeElement);
    this.places = places;
    this.all = all;
    const numbers = places.map((box) => this.request.objects.findIndex((object) => sameBox(object.box, box)) + 1);
    $("sure").hidden = !places.length;
    $("send").hidden = !this.request || places.length > 0;
    text("sure-asked", places.length ? fill(all ? STRINGS.allAsk : STRINGS.sureAsk, { count: places.length }) : "");
    text("sure-yes", all ? STRINGS.allYes : STRINGS.sureYes);
    $("sure-places").replaceChildren(
      ...places.map((box, index) => {
        const item = document.createElement("li"),
          name = document.createElement("strong");
        name.textContent = [numbers[index] || STRINGS.sureOther, all && STRINGS.labels[this.request.objects[index].label]]
          .filter(Boolean)
          .join(": ");
        item.append(this.view.crop(box), name);
        return item;
      }),
    );
    if (places.length)
      $("sure-no").focus(); // what a second Enter presses
    else if (within) $("send").focus(); // a hidden button would keep the next key to itself until the page is drawn again
  }

  // The second look is done.
  sure() {
    if (this.all) {
      this.scene = "none";
      this.view.choices.fill("remove");
      this.changed();
      this.send();
    } else this.send(this.places);
  }

  // Whether something is to be peeled by what is said so far.
  get peels() {
    return this.view.choices.includes("remove") || this.view.drawn.length > 0;
  }

  // What is still to be said before the answer can be sent; empty when nothing is.
  get missing() {
    const { choices, drawn } = this.view;
    if (!this.request || (this.scene !== "none" && this.scene !== "clean")) return "";
    if (!this.view.known) return STRINGS.notSeen;
    if (this.scene !== "none") return "";
    const open = choices.flatMap((said, index) => (said ? [] : [index + 1]));
    if (open.length) return fill(STRINGS.openObjects, { objects: open.join(", ") });
    if (!choices.length && !drawn.length) return STRINGS.nothingSaid;
    const boxes = this.request.objects.map((object) => object.box);
    for (let a = 0; a < boxes.length; a++)
      for (let b = a + 1; b < boxes.length; b++) {
        if (choices[a] !== choices[b] && sameBox(boxes[a], boxes[b])) return fill(STRINGS.samePlace, { first: a + 1, second: b + 1 });
      }
    return "";
  }

  choose(index) {
    if (!this.request || index < 0 || index >= this.request.objects.length) return;
    this.view.focus = index;
    $("objects").children[index].scrollIntoView({ block: "nearest" });
    this.mark();
  }

  // Something is said: it stands in place of an answer for the whole image, which is of the opposite.
  changed() {
    this.ask([]);
    this.hint("");
    this.mark();
    this.keep();
  }

  say(answer) {
    if (!this.request || this.view.focus < 0 || this.blind) return;
    this.view.choices[this.view.focus] = answer;
    this.scene = "none";
    this.changed();
  }

  // Says that nothing can be said of objects that are not on the page; returns whether it is so.
  get blind() {
    if (!this.view.known) this.hint(STRINGS.notSeen, true);
    return !this.view.known;
  }

  sayOfScene(key) {
    if (!this.request || (key === "clean" && this.blind)) return;
    if (key === "clean" && this.peels) {
      this.hint(STRINGS.peelsFirst, true);
      return;
    }
    this.scene = this.scene === key ? "none" : key;
    this.view.draw(false);
    this.changed();
  }

  // Whether a box that was drawn is taken; not where an object is asked about already, which has its own answer.
  addDrawn(box) {
    if (this.blind) return;
    const there = this.request.objects.findIndex((object) => sameBox(object.box, box)),
      again = this.view.drawn.findIndex((other) => sameBox(other, box));
    if (there >= 0) {
      this.choose(there);
      this.hint(fill(STRINGS.askedThere, { object: there + 1 }), true);
      return;
    }
    if (again >= 0) {
      this.hint(fill(STRINGS.drawnThere, { name: letter(again) }), true);
      return;
    }
    this.view.drawn.push(box);
    this.scene = "none";
    this.changed();
    $("drawn").lastElementChild.scrollIntoView({ block: "nearest" });
  }

  // A touch on the picture: of an object in question it chooses this one, of a place that may have been missed it is a drawn box.
  pick({ x, y }) {
    const inside = (box) => x >= box.x1 && x <= box.x2 && y >= box.y1 && y <= box.y2;
    const object = this.request.objects.findIndex(({ box }) => inside(box)),
      place = this.view.frozen && this.missed.find(inside);
    if (object >= 0) this.choose(object);
    else if (place) this.addDrawn({ ...place });
    else this.hint(this.view.drawing ? STRINGS.tooSmall : STRINGS.pressDraw);
  }

  takeBack(index) {
    this.view.drawn.splice(index, 1);
    this.changed();
  }

  toggleDrawing(byKey) {
    if (!this.request || this.blind) return;
    this.scene = "none";
    this.view.draw(!this.view.drawing, byKey);
    this.changed();
  }

  // Drops what was said of the last answer in the state `now`, unless the next question is open or it says what holds there:
  // what comes after Release, or after the reset of the fault that was the answer.
  forget(now) {
    const holds = now === "held" || (now.startsWith("fault") && this.last === "fault");
    if (!this.request && !this.waiting && !holds) this.hint("");
  }

  hint(words, bad = false) {
    this.told = Boolean(words);
    text("message", words || this.missing);
    $("message").classList.toggle("bad", bad);
  }

  keep() {
    if (this.request)
      sessionStorage.setItem(
        "answer",
        JSON.stringify({ id: this.request.request_id, choices: this.view.choices, drawn: this.view.drawn, scene: this.scene }),
      );
  }

  // `meant`: what looks like a sticker and was shown to be no sticker.
  async send(meant = []) {
    const { request, view } = this;
    if (!request || this.waiting) return;
    if (this.scene === "clean" && this.stickers.some((box) => !meant.some((other) => sameBox(other, box)))) {
      this.ask(this.stickers);
      return;
    }
    if (this.missing) {
      this.choose(view.choices.indexOf(null));
      this.hint(this.missing, true);
      return;
    }
    // an answer for the whole image stands alone
    const answers = this.scene !== "none" ? [] : request.objects.map((object, index) => ({ answer: view.choices[index], ...object.box }));
    if (this.scene === "none") answers.push(...view.drawn.map((box) => ({ answer: "missed", ...box })));
    this.waiting = this.told = true;
    const { scene } = this,
      not_stickers = scene === "clean" ? meant.map((box) => ({ ...box })) : [];
    this.ask([]);
    this.answered = request.request_id;
    const accepted = await this.post(
      "answer",
      STRINGS.answer,
      { request_id: request.request_id, image_ns: view.known ? request.stamp : "0", scene, answers, not_stickers },
      $("message"),
      () => this.taken(scene, ""),
    );
    if (!accepted) this.answered = "";
    this.waiting = false;
  }
}

function recall(id) {
  const kept = JSON.parse(sessionStorage.getItem("answer") || "null");
  return kept && kept.id === id ? kept : null;
}

// Reasons in plain words, and the numbers behind them in a box to be opened.
function whys(reasons) {
  const line = document.createElement("div"),
    box = document.createElement("details");
  line.className = "why";
  line.textContent = plain(reasons);
  box.append(document.createElement("summary"), document.createElement("p"));
  details(box, reasons);
  return [line, box];
}

function choice(label, act) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = label;
  press(button, false);
  button.addEventListener("click", act);
  return button;
}

function press(button, on) {
  button.setAttribute("aria-pressed", String(on));
}

function text(id, value) {
  if ($(id).textContent !== value) $(id).textContent = value;
}
