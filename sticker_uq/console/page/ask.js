/* SPDX-License-Identifier: Apache-2.0 */
// Asks yes or no about the numbered boxes of one laptop after the other. What is answered is kept when its last question is.
import { STRINGS, fill, speak } from "./strings.js";

const $ = (id) => document.getElementById(id);
const WORDS = STRINGS.ask,
  KINDS = { s: "sticker", x: "no_sticker", l: "takes_logo" },
  SVG = "http://www.w3.org/2000/svg",
  MARGIN = 0.4;
let state = null, // what is asked
  answers = [],
  same = [], // of each pair of boxes whether it is one sticker
  focus = -1, // the box that was chosen to be answered anew
  loaded = "", // the address of the picture that is there
  steps = [], // what was said before each answer
  busy = false;

speak($("language"));
document.title = WORDS.title;
for (const [id, words] of Object.entries({
  title: WORDS.title,
  "no-picture": STRINGS.noPicture,
  back: WORDS.back,
  "keys-title": STRINGS.keysTitle,
}))
  $(id).textContent = words;
$("keys").append(...Object.entries(WORDS.keys).flatMap(([key, words]) => [element("dt", key), element("dd", words)]));
$("back").addEventListener("click", goBack);
$("picture").addEventListener("load", () => {
  loaded = $("picture").currentSrc;
  show();
});
document.addEventListener("keydown", onKey);
take("question");

function element(name, words) {
  const made = document.createElement(name);
  made.textContent = words;
  return made;
}

// Asks the machine, with `body` telling it something, and shows what it asks next; what did not get through is still there.
async function take(where, body) {
  if (busy) return;
  busy = true;
  let problem = "";
  try {
    const how = body && { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
    let response = await fetch(where, how);
    if (!response.ok) problem = STRINGS.notDone + (STRINGS.replies[response.status] || String(response.status));
    if (response.status === 409) response = await fetch("question");
    if (response.ok) ask(await response.json());
  } catch {
    problem = STRINGS.notDone + STRINGS.unreachable;
  }
  busy = false;
  $("message").textContent = problem;
  $("message").classList.toggle("bad", Boolean(problem));
}

function ask(asked) {
  state = asked;
  const { question } = state;
  answers = question ? question.boxes.map(() => null) : [];
  same = question ? question.pairs.map(() => null) : [];
  focus = -1;
  steps = [];
  if (question) {
    const [width, height] = question.size;
    $("view").style.setProperty("--aspect", width / height);
    $("marks").setAttribute("viewBox", `0 0 ${width} ${height}`);
    loaded = "";
    $("picture").src = "picture/" + question.image + ".jpg";
    if (state.next) new Image().src = "picture/" + state.next + ".jpg";
  }
  show();
}

// Whether the picture that is asked about is there: another one under these boxes would be a wrong one.
const pictured = () => loaded.endsWith("/" + state.question?.image + ".jpg");
const onSticker = (number) => answers[number] === "sticker" || answers[number] === "takes_logo";

// What is asked now: a box, a pair of boxes on stickers at one place, or, at the end, whether anything else is left.
function current() {
  const box = focus >= 0 ? focus : answers.indexOf(null);
  if (box >= 0) return { box };
  const pair = state.question.pairs.findIndex(([i, j], number) => same[number] === null && onSticker(i) && onSticker(j));
  return pair >= 0 ? { pair } : {};
}

// The choices of what is asked: key, words, and what is done.
function choices() {
  const { box, pair } = current();
  if (box !== undefined) {
    const kinds = Object.entries(KINDS).map(([key, kind]) => [key, WORDS.kinds[kind], () => sayOf(box, kind)]);
    const open = answers.filter((said) => said === null).length;
    return open > 1 && focus < 0 ? [...kinds, ["a", fill(WORDS.all, { count: open }), sayAll]] : kinds;
  }
  if (pair !== undefined)
    return [
      ["o", WORDS.one, () => sayOfPair(pair, true)],
      ["t", WORDS.two, () => sayOfPair(pair, false)],
    ];
  return [
    ["y", WORDS.yes, () => end(true)],
    ["n", WORDS.no, () => end(false)],
  ];
}

function remember() {
  steps.push([[...answers], [...same]]);
}

function sayOf(box, kind) {
  remember();
  answers[box] = kind;
  same = same.map((said, number) => (state.question.pairs[number].includes(box) ? null : said));
  focus = -1;
  show();
}

function sayAll() {
  remember();
  answers = answers.map((said) => said || "sticker");
  show();
}

function sayOfPair(pair, one) {
  remember();
  same[pair] = one;
  show();
}

function end(other) {
  take("answer", { image: state.question.image, boxes: answers, same, other });
}

// One answer back; before the first one of a laptop, the whole laptop before it.
function goBack() {
  if (busy || !state) return;
  if (focus >= 0) focus = -1;
  else if (steps.length) [answers, same] = steps.pop();
  else {
    if (state.last) take("undo", { image: state.last });
    return;
  }
  show();
}

function choose(box) {
  if (!state?.question || box < 0 || box >= answers.length) return;
  focus = box;
  show();
}

function show() {
  if (!state) return;
  const { question } = state,
    there = Boolean(question) && pictured();
  $("count").textContent = fill(WORDS.count, { answered: state.answered, of: state.of });
  $("view").hidden = !question;
  $("picture").classList.toggle("none", !there);
  $("no-picture").hidden = there;
  $("back").disabled = !steps.length && focus < 0 && !state.last;
  $("close").hidden = true;
  $("choices").replaceChildren();
  $("boxes").replaceChildren();
  $("marks").replaceChildren();
  if (!question) {
    $("asked").textContent = WORDS.finished;
    $("hint").textContent = WORDS.finishedHint;
    return;
  }
  const { box, pair } = current(),
    [first, second] = pair === undefined ? [] : question.pairs[pair];
  $("asked").textContent =
    box !== undefined
      ? fill(WORDS.askBox, { number: box + 1, of: answers.length })
      : pair !== undefined
        ? fill(WORDS.askPair, { first: first + 1, second: second + 1 })
        : WORDS.askOther[answers.length ? "beside" : "any"];
  $("hint").textContent = box !== undefined ? WORDS.hintBox : pair !== undefined ? WORDS.hintPair : WORDS.hintOther;
  if (!there) return; // nothing is answered about what is not seen
  const shown = box !== undefined ? [box] : pair !== undefined ? [first, second] : [];
  for (const [number, each] of question.boxes.entries()) mark(each, number, shown.includes(number));
  if (shown.length) closeUp(shown.map((number) => question.boxes[number]));
  for (const [key, words, act] of choices()) {
    const button = element("button", words);
    button.type = "button";
    button.prepend(element("kbd", key.toUpperCase()));
    button.addEventListener("click", act);
    $("choices").append(button);
  }
  for (const [number, said] of answers.entries()) {
    const button = element("button", number + 1 + (said ? ": " + WORDS.kinds[said] : ""));
    button.type = "button";
    button.setAttribute("aria-pressed", String(number === box));
    button.addEventListener("click", () => choose(number));
    const line = document.createElement("li");
    line.append(button);
    $("boxes").append(line);
  }
}

function mark([x1, y1, x2, y2], number, asked) {
  const frame = document.createElementNS(SVG, "rect"),
    name = document.createElementNS(SVG, "text"),
    size = state.question.size[0] / 32;
  for (const [key, value] of Object.entries({ x: x1, y: y1, width: x2 - x1, height: y2 - y1 })) frame.setAttribute(key, value);
  for (const [key, value] of Object.entries({ x: x1, y: Math.max(y1 - size / 4, size), "font-size": size })) name.setAttribute(key, value);
  frame.setAttribute("class", asked ? "asked" : answers[number] || "open");
  name.textContent = number + 1;
  $("marks").append(frame, name);
}

// What lies in `boxes`, enlarged, with what is around it.
function closeUp(boxes) {
  const canvas = $("close"),
    pen = canvas.getContext("2d"),
    edge = (index, pick) => pick(...boxes.map((each) => each[index]));
  const [x1, y1, x2, y2] = [edge(0, Math.min), edge(1, Math.min), edge(2, Math.max), edge(3, Math.max)],
    scale = Math.min(canvas.width / ((x2 - x1) * (1 + 2 * MARGIN)), canvas.height / ((y2 - y1) * (1 + 2 * MARGIN)));
  const left = (x1 + x2 - canvas.width / scale) / 2,
    top = (y1 + y2 - canvas.height / scale) / 2;
  pen.reset();
  pen.drawImage($("picture"), left, top, canvas.width / scale, canvas.height / scale, 0, 0, canvas.width, canvas.height);
  pen.lineWidth = 3;
  pen.strokeStyle = "#e69f00";
  for (const [a, b, c, d] of boxes) pen.strokeRect((a - left) * scale, (b - top) * scale, (c - a) * scale, (d - b) * scale);
  canvas.hidden = false;
}

function onKey(event) {
  const { key } = event;
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || !state) return;
  const chosen = state.question && pictured() && choices().find(([own]) => own === key.toLowerCase());
  if (chosen) chosen[2]();
  else if (key === "Backspace") goBack();
  else if (/^[1-9]$/.test(key)) choose(Number(key) - 1);
  else return;
  event.preventDefault();
}
