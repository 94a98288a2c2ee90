// The picture with what is drawn over it, and the tool that draws a missed sticker. Coordinates are pixels of the camera's image.
import { STRINGS } from "./strings.js";

const $ = (id) => document.getElementById(id);
// Okabe and Ito's colours; each verdict has a line of its own kind too, so that nothing depends on colour.
const STYLES = {
  remove: { colour: "#009e73", dash: [] }, keep: { colour: "#56b4e9", dash: [3, 5] },
  ask: { colour: "#e69f00", dash: [14, 7] }, unknown: { colour: "#e69f00", dash: [14, 7] },
};
const DRAWN = "#cc79a7", CHOSEN = "#ffffff", SMALLEST = 6;
const UNEXPLAINED = { colour: "#d55e00", dash: [2, 6] };

export class View {
  constructor() {
    this.scene = null; this.request = null;
    this.layers = { boxes: true, hulls: true, heat: false, live: false };
    this.drawn = []; this.choices = []; this.focus = -1;
    this.size = { width: 0, height: 0 };
    this.pen = null;      // the box being drawn
    this.drawing = false; // whether the drawing tool is on
    this.onDrawn = () => {};
    this.shown = "";
    $("picture").addEventListener("load", () => this.redraw());
    window.addEventListener("resize", () => this.redraw());
    this.listen();
  }

  get frozen() { return Boolean(this.request && this.request.picture && !this.layers.live); }

  // What is shown of a scene: of the question's while its picture is shown, however many have come since. null: not known any more.
  get seen() { return this.frozen ? this.request.scene || null : this.scene; }

  // `heat` is the stamp of the newest saliency.
  update(scene, request, heat) {
    this.scene = scene; this.request = request;
    const stamp = this.frozen ? request.stamp : scene && scene.picture ? scene.stamp : "";
    if (stamp && stamp !== this.shown) {
      this.shown = stamp;
      $("picture").src = "picture/" + stamp + ".jpg";
      $("no-picture").hidden = true;
    }
    const shownHeat = this.layers.heat && stamp ? (this.frozen ? (request.heat ? stamp : "") : heat || "") : "";
    $("heat").hidden = !shownHeat;
    if (shownHeat && $("heat").dataset.stamp !== shownHeat) {
      $("heat").dataset.stamp = shownHeat;
      $("heat").src = "heat/" + shownHeat + ".png";
    }
    const sized = this.seen || scene;
    if (sized) this.size = { width: sized.width, height: sized.height };
    const which = !stamp ? "" : this.frozen ? STRINGS.frozen : STRINGS.live;
    $("which").textContent = which + (stamp && this.layers.heat && !shownHeat ? ". " + STRINGS.noHeat : "");
    this.redraw();
  }

  redraw() {
    const canvas = $("overlay");
    canvas.width = canvas.clientWidth * devicePixelRatio; canvas.height = canvas.clientHeight * devicePixelRatio;
    if (!this.size.width) return;
    const scale = canvas.width / this.size.width, pen = canvas.getContext("2d");
    pen.font = "bold " + 17 * devicePixelRatio + "px system-ui, sans-serif";
    const asked = this.request ? this.request.objects : [];
    for (const object of this.seen ? this.seen.objects : []) {
      const inQuestion = asked.some((other) => sameBox(other.box, object.box));
      if (this.layers.boxes && !inQuestion) this.frame(pen, scale, object.box, STYLES[object.verdict], label(object), 2);
      if (this.layers.hulls) this.hulls(pen, scale, object);
    }
    // what may have been missed, thick where the question is about it
    const causes = this.request ? this.request.reasons.flatMap((reason) => (reason.box ? [reason.box] : [])) : [];
    const places = (this.seen ? this.seen.unexplained : []).map((region) => region.box);
    if (this.layers.boxes) {
      for (const box of places.filter((place) => !causes.some((cause) => sameBox(cause, place)))) this.frame(pen, scale, box, UNEXPLAINED, STRINGS.unexplained, 2);
      for (const box of causes) this.frame(pen, scale, box, UNEXPLAINED, STRINGS.unexplained, 5);
    }
    asked.forEach((object, index) => {
      const style = this.choices[index] ? { colour: STYLES[{ remove: "remove" }[this.choices[index]] || "keep"].colour, dash: [] } : STYLES.ask;
      const words = (index + 1) + (this.choices[index] ? " " + STRINGS.answers[this.choices[index]] : " ?");
      this.frame(pen, scale, object.box, style, words, index === this.focus ? 6 : 4);
    });
    for (const box of this.drawn) this.frame(pen, scale, box, { colour: DRAWN, dash: [] }, STRINGS.answers.missed, 4);
    if (this.pen) this.frame(pen, scale, this.pen, { colour: DRAWN, dash: [6, 4] }, "", 4);
  }

  frame(pen, scale, box, style, words, width) {
    const x = box.x1 * scale, y = box.y1 * scale, w = (box.x2 - box.x1) * scale, h = (box.y2 - box.y1) * scale;
    pen.setLineDash([]); pen.lineWidth = (width + 3) * devicePixelRatio; pen.strokeStyle = "rgba(0,0,0,.55)";
    pen.strokeRect(x, y, w, h);
    pen.setLineDash(style.dash.map((length) => length * devicePixelRatio));
    pen.lineWidth = width * devicePixelRatio; pen.strokeStyle = style.colour;
    pen.strokeRect(x, y, w, h);
    pen.setLineDash([]);
    if (!words) return;
    const high = 24 * devicePixelRatio, wide = pen.measureText(words).width + 10 * devicePixelRatio, top = y > high ? y - high : y;
    pen.fillStyle = "rgba(16,20,26,.85)"; pen.fillRect(x, top, wide, high);
    pen.fillStyle = CHOSEN; pen.fillText(words, x + 5 * devicePixelRatio, top + 18 * devicePixelRatio);
  }

  hulls(pen, scale, object) {
    pen.fillStyle = STYLES[object.verdict].colour + "99"; pen.strokeStyle = CHOSEN; pen.lineWidth = devicePixelRatio;
    for (const hull of object.hulls) {
      pen.beginPath();
      hull.forEach(([x, y], index) => (index ? pen.lineTo(x * scale, y * scale) : pen.moveTo(x * scale, y * scale)));
      pen.closePath(); pen.fill(); pen.stroke();
    }
  }

  // The drawing tool

  draw(on) {
    this.drawing = on && Boolean(this.request) && this.size.width > 0;
    this.pen = null;
    if (this.drawing) {
      const { width, height } = this.size;
      this.pen = { x1: width * 0.4, y1: height * 0.4, x2: width * 0.6, y2: height * 0.6 };
      $("view").focus();
    }
    this.redraw();
    return this.drawing;
  }

  take() {
    if (!this.pen || this.pen.x2 - this.pen.x1 < SMALLEST || this.pen.y2 - this.pen.y1 < SMALLEST) return false;
    this.drawn.push(this.pen);
    this.pen = null; this.drawing = false;
    this.onDrawn(); this.redraw();
    return true;
  }

  // Moves or sizes the box by a step of the picture; returns whether the key meant something here.
  key(event) {
    if (!this.drawing || !this.pen) return false;
    const step = Math.max(1, Math.round(this.size.width / 100));
    const [dx, dy] = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] }[event.key] || [0, 0];
    if (event.key === "Enter") return this.take();
    if (event.key === "Escape") { this.pen = null; this.drawing = false; this.onDrawn(); this.redraw(); return true; }
    if (!dx && !dy) return false;
    const box = { ...this.pen };
    if (event.shiftKey) { box.x2 += dx; box.y2 += dy; } else { box.x1 += dx; box.x2 += dx; box.y1 += dy; box.y2 += dy; }
    const inside = box.x1 >= 0 && box.y1 >= 0 && box.x2 <= this.size.width && box.y2 <= this.size.height;
    if (inside && box.x2 - box.x1 >= SMALLEST && box.y2 - box.y1 >= SMALLEST) this.pen = box;
    this.redraw();
    return true;
  }

  listen() {
    const canvas = $("overlay");
    const at = (event) => {
      const frame = canvas.getBoundingClientRect(), scale = this.size.width / frame.width;
      const clip = (value, top) => Math.min(Math.max(value, 0), top);
      return { x: clip((event.clientX - frame.left) * scale, this.size.width), y: clip((event.clientY - frame.top) * scale, this.size.height) };
    };
    let from = null;
    canvas.addEventListener("pointerdown", (event) => {
      if (!this.request || !this.size.width) return;
      from = at(event); canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!from) return;
      const to = at(event);
      this.pen = { x1: Math.min(from.x, to.x), y1: Math.min(from.y, to.y), x2: Math.max(from.x, to.x), y2: Math.max(from.y, to.y) };
      this.redraw();
    });
    const end = () => {
      if (from && !this.take()) { this.pen = null; this.redraw(); }
      from = null;
    };
    canvas.addEventListener("pointerup", end);
    canvas.addEventListener("pointercancel", () => { from = null; this.pen = null; this.redraw(); });
  }
}

function label(object) {
  const sure = object.probability === null ? "" : " " + Math.round(object.probability * 100) + "%";
  return STRINGS.labels[object.label] + sure + ", " + STRINGS.verdicts[object.verdict];
}

// Whether two boxes mean the same place, as the gate has it.
export function sameBox(a, b) {
  const w = Math.min(a.x2, b.x2) - Math.max(a.x1, b.x1), h = Math.min(a.y2, b.y2) - Math.max(a.y1, b.y1);
  if (w <= 0 || h <= 0) return false;
  const area = (box) => (box.x2 - box.x1) * (box.y2 - box.y1);
  return (w * h) / (area(a) + area(b) - w * h) >= 0.5;
}
