/* SPDX-License-Identifier: Apache-2.0 */
// The picture with what is drawn over it, and the tool that draws a missed sticker. Coordinates are pixels of the camera's image.
import { age } from "./panels.js";
import { SAME_PLACE_IOU, STRINGS, fill } from "./strings.js";

const $ = (id) => document.getElementById(id);
// Okabe and Ito's colours; each verdict has a line of its own kind too, so that nothing depends on colour.
const STYLES = {
  remove: { colour: "#009e73", dash: [] },
  keep: { colour: "#56b4e9", dash: [3, 5] },
  ask: { colour: "#e69f00", dash: [14, 7] },
  unknown: { colour: "#c6ced7", dash: [3, 5] },
};
export const DRAWN = "#cc79a7";
const CHOSEN = "#ffffff",
  SMALLEST = 6,
  MARGIN = 0.25;
const UNEXPLAINED = { colour: "#d55e00", dash: [2, 6] };

export class View {
  constructor() {
    this.scene = null;
    this.request = null;
    this.layers = { boxes: true, hulls: false, heat: false, live: false };
    this.drawn = [];
    this.choices = [];
    this.focus = -1;
    this.whole = false; // whether the answer is for the whole image
    this.acts = false; // whether the arm may act on the newest scene
    this.byKey = false; // whether the box is drawn with keys
    this.size = { width: 0, height: 0 };
    this.pen = null; // the box being drawn
    this.drawing = false; // whether the drawing tool is on
    this.accept = this.onPick = this.onTool = this.onPictured = () => {};
    this.shown = "";
    this.loaded = "";
    this.pictured = ""; // the stamp of the question whose own picture has been on the page
    this.crops = [];
    $("picture").addEventListener("load", () => {
      this.loaded = this.shown;
      this.showPicture();
    });
    $("picture").addEventListener("error", () => {
      this.loaded = "";
      this.showPicture();
    });
    new ResizeObserver(() => this.redraw()).observe($("view"));
    this.listen();
  }

  get frozen() {
    return Boolean(this.request?.picture && !this.layers.live);
  }

  // Whether the operator has seen what the open question is about: without, objects cannot be answered.
  get known() {
    return Boolean(this.request) && this.pictured === this.request.stamp;
  }

  // What is shown of a scene: of the question's while its picture is shown, however many have come since. null: not known any more.
  get seen() {
    return this.frozen ? this.request.scene || null : this.scene;
  }

  // `heat` is the stamp of the newest saliency; `acts`: whether the arm may act on the newest scene.
  update(state, acts) {
    const { scene = null, request = null, heat } = state,
      old = age(state);
    this.scene = scene;
    this.request = request;
    this.acts = acts;
    const stamp = this.frozen ? request.stamp : scene?.picture ? scene.stamp : "";
    if (stamp !== this.shown) {
      this.shown = stamp;
      if (stamp) $("picture").src = "picture/" + stamp + ".jpg";
      else {
        this.loaded = "";
        this.showPicture();
      }
    }
    const shownHeat = this.layers.heat && stamp ? (this.frozen ? (request.heat ? stamp : "") : heat || "") : "";
    $("heat").hidden = !shownHeat;
    if (shownHeat && $("heat").dataset.stamp !== shownHeat) {
      $("heat").dataset.stamp = shownHeat;
      $("heat").src = "heat/" + shownHeat + ".png";
    }
    const sized = this.seen || scene;
    if (sized && sized.width > 0 && sized.height > 0) this.size = { width: sized.width, height: sized.height };
    if (this.size.width) $("view").style.setProperty("--aspect", this.size.width / this.size.height);
    $("layer-live").hidden = !request || !request.picture; // otherwise it is shown anyway
    const which = this.frozen ? STRINGS.frozen : old ? fill(STRINGS.old, { age: old }) : STRINGS.live;
    const lacks = [request && !request.picture && STRINGS.notKept, this.layers.heat && !shownHeat && STRINGS.noHeat];
    $("which").textContent = stamp ? [which, ...lacks].filter(Boolean).join(". ") : "";
    $("which").classList.toggle("old-picture", Boolean(old) && !this.frozen);
    this.notice();
    this.redraw();
  }

  // A picture that did not come leaves none: another one under these boxes would be a wrong one.
  showPicture() {
    $("picture").classList.toggle("none", !this.loaded);
    $("no-picture").hidden = Boolean(this.loaded);
    this.notice();
    this.crops = this.crops.filter(([canvas]) => canvas.isConnected);
    for (const crop of this.crops) this.cut(...crop);
    this.redraw();
  }

  // The picture may have been there, live, before the question came.
  notice() {
    if (!this.loaded || !this.request || this.loaded !== this.request.stamp || this.pictured === this.loaded) return;
    this.pictured = this.loaded;
    this.onPictured();
  }

  // What lies in `box` with a margin, and the box itself in `colour`; empty until the picture of the question is there.
  crop(box, colour = STYLES.ask.colour) {
    const canvas = document.createElement("canvas");
    canvas.className = "crop none";
    canvas.width = 192;
    canvas.height = 144;
    canvas.setAttribute("aria-hidden", "true");
    this.crops.push([canvas, box, colour]);
    this.cut(canvas, box, colour);
    return canvas;
  }

  cut(canvas, box, colour) {
    if (!this.frozen || this.loaded !== this.request.stamp) return;
    const wide = (box.x2 - box.x1) * (1 + 2 * MARGIN),
      high = (box.y2 - box.y1) * (1 + 2 * MARGIN),
      scale = Math.min(canvas.width / wide, canvas.height / high);
    const [w, h] = [canvas.width / scale, canvas.height / scale];
    const pen = canvas.getContext("2d"),
      left = (box.x1 + box.x2 - w) / 2,
      top = (box.y1 + box.y2 - h) / 2;
    pen.drawImage($("picture"), left, top, w, h, 0, 0, canvas.width, canvas.height);
    for (const [width, style] of [
      [6, "rgba(0,0,0,.55)"],
      [3, colour],
    ]) {
      pen.lineWidth = width;
      pen.strokeStyle = style;
      pen.strokeRect((box.x1 - left) * scale, (box.y1 - top) * scale, (box.x2 - box.x1) * scale, (box.y2 - box.y1) * scale);
    }
    canvas.classList.remove("none");
  }

  redraw() {
    const canvas = $("overlay");
    canvas.width = canvas.clientWidth * devicePixelRatio;
    canvas.height = canvas.clientHeight * devicePixelRatio;
    if (!this.size.width || !this.loaded) return;
    const scale = canvas.width / this.size.width,
      pen = canvas.getContext("2d");
    // boxes of the question belong to its own picture
    const request = this.request && (this.frozen || !this.request.picture) ? this.request : null;
    const asked = request ? request.objects : [],
      marks = [];
    const mark = (box, style, words, width, needed) => {
      this.frame(pen, scale, box, style, width);
      if (words) marks.push({ box, words, needed });
    };
    for (const object of this.seen ? this.seen.objects : []) {
      const inQuestion = asked.some((other) => sameBox(other.box, object.box));
      // while a question is open, only what it asks about looks open
      // and no verdict is shown that nothing follows from
      const holds = this.frozen || this.acts;
      const style = (request && object.verdict === "ask") || !holds ? STYLES.unknown : STYLES[object.verdict];
      if (this.layers.boxes && !inQuestion) mark(object.box, style, holds ? label(object) : "", 2, false);
      if (this.layers.hulls) this.hulls(pen, scale, object);
    }
    // what may have been missed, thick where the question is about it
    const causes = request ? request.reasons.filter((reason) => reason.box) : [];
    const places = (this.seen ? this.seen.unexplained : []).map((region) => region.box);
    if (this.layers.boxes) {
      for (const box of places.filter((place) => !causes.some((cause) => sameBox(cause.box, place)))) mark(box, UNEXPLAINED, "", 2, false);
      for (const { box, code } of causes) {
        const taken = !this.whole && this.drawn.some((other) => sameBox(other, box));
        if (!taken) mark(box, UNEXPLAINED, code === "novel_place" ? STRINGS.unfamiliar : STRINGS.unexplained, 5, true);
      }
    }
    asked.forEach((object, index) => {
      const said = this.whole ? null : this.choices[index];
      const style = said
        ? { colour: STYLES[said === "remove" ? "remove" : "keep"].colour, dash: [] }
        : this.whole
          ? STYLES.unknown
          : STYLES.ask;
      mark(
        object.box,
        style,
        index + 1 + (said ? " " + STRINGS.answers[said] : this.whole ? "" : " ?"),
        index === this.focus ? 6 : 4,
        true,
      );
    });
    if (request && !this.whole) {
      for (const [index, box] of this.drawn.entries()) mark(box, { colour: DRAWN, dash: [] }, letter(index), 4, true);
    }
    if (this.pen) this.frame(pen, scale, this.pen, { colour: DRAWN, dash: [6, 4] }, 4);
    this.labels(pen, scale, marks);
  }

  frame(pen, scale, box, style, width) {
    const x = box.x1 * scale,
      y = box.y1 * scale,
      w = (box.x2 - box.x1) * scale,
      h = (box.y2 - box.y1) * scale;
    pen.setLineDash([]);
    pen.lineWidth = (width + 3) * devicePixelRatio;
    pen.strokeStyle = "rgba(0,0,0,.55)";
    pen.strokeRect(x, y, w, h);
    pen.setLineDash(style.dash.map((length) => length * devicePixelRatio));
    pen.lineWidth = width * devicePixelRatio;
    pen.strokeStyle = style.colour;
    pen.strokeRect(x, y, w, h);
    pen.setLineDash([]);
  }

  // Writes the labels beside their boxes, those of the question first. One that would cover a box or another label is left out, or, of
  // the question, put where it covers least.
  labels(pen, scale, marks) {
    const high = 24 * devicePixelRatio,
      pad = 5 * devicePixelRatio,
      { width, height } = $("overlay");
    pen.font = "bold " + 17 * devicePixelRatio + "px system-ui, sans-serif";
    const taken = marks.map(({ box }) => ({
      x1: box.x1 * scale - pad,
      y1: box.y1 * scale - pad,
      x2: box.x2 * scale + pad,
      y2: box.y2 * scale + pad,
    }));
    const frames = [...taken];
    this.labelled = [];
    for (const needed of [true, false])
      marks.forEach((mark, index) => {
        if (mark.needed !== needed) return;
        const wide = pen.measureText(mark.words).width + 2 * pad,
          { x1, y1, x2, y2 } = frames[index];
        const places = [
          [x1, y1 - high],
          [x2 - wide, y1 - high],
          [x1, y2],
          [x2 - wide, y2],
          [x2, y1],
          [x1 - wide, y1],
          [x2, y2 - high],
          [x1 - wide, y2 - high],
        ];
        const options = places
          .map(([x, y]) => ({ x1: x, y1: y, x2: x + wide, y2: y + high }))
          .filter((spot) => spot.x1 >= 0 && spot.y1 >= 0 && spot.x2 <= width && spot.y2 <= height);
        const covers = (spot) => taken.reduce((sum, other) => sum + shared(spot, other), 0);
        const best = options.reduce((a, b) => (a && covers(a) <= covers(b) ? a : b), null);
        if (!best || (!needed && covers(best) > 0)) return;
        taken.push(best);
        this.labelled.push(mark.words);
        pen.fillStyle = "rgba(16,20,26,.85)";
        pen.fillRect(best.x1, best.y1, wide, high);
        pen.fillStyle = CHOSEN;
        pen.fillText(mark.words, best.x1 + pad, best.y1 + 18 * devicePixelRatio);
      });
  }

  hulls(pen, scale, object) {
    pen.fillStyle = STYLES[object.verdict].colour + "99";
    pen.strokeStyle = CHOSEN;
    pen.lineWidth = devicePixelRatio;
    for (const hull of object.hulls) {
      pen.beginPath();
      for (const [x, y] of hull) pen.lineTo(x * scale, y * scale); // the first one begins the path
      pen.closePath();
      pen.fill();
      pen.stroke();
    }
  }

  // The drawing tool. `byKey`: it begins with a box in the middle, which the arrows move.

  draw(on, byKey = false) {
    this.drawing = on && Boolean(this.request) && this.size.width > 0;
    this.pen = null;
    this.byKey = byKey;
    if (this.drawing && this.layers.live) $("layer-live").click(); // a box belongs to the picture in question
    if (this.drawing && byKey) {
      const { width, height } = this.size;
      this.pen = { x1: width * 0.4, y1: height * 0.4, x2: width * 0.6, y2: height * 0.6 };
      $("view").focus();
    }
    $("view").classList.toggle("drawing", this.drawing);
    $("draw-hint").hidden = !this.drawing;
    $("draw-hint").textContent = byKey ? STRINGS.drawKeys : STRINGS.drawHint;
    this.redraw();
  }

  take() {
    const box = this.pen;
    // with keys the next Enter is to send; a finger may draw more
    if (this.byKey) this.draw(false);
    else this.pen = null;
    this.accept(box);
    this.onTool();
  }

  // Moves or sizes the box by a step of the picture; returns whether the key meant something here.
  key(event) {
    if (!this.drawing) return false;
    if (event.key === "Escape") {
      this.draw(false);
      this.onTool();
      return true;
    }
    if (!this.pen) return false;
    const step = Math.max(1, Math.round(this.size.width / 100));
    const [dx, dy] = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] }[event.key] || [0, 0];
    if (event.key === "Enter") {
      this.take();
      return true;
    }
    if (!dx && !dy) return false;
    const box = { ...this.pen };
    if (event.shiftKey) {
      box.x2 += dx;
      box.y2 += dy;
    } else {
      box.x1 += dx;
      box.x2 += dx;
      box.y1 += dy;
      box.y2 += dy;
    }
    const inside = box.x1 >= 0 && box.y1 >= 0 && box.x2 <= this.size.width && box.y2 <= this.size.height;
    if (inside && box.x2 - box.x1 >= SMALLEST && box.y2 - box.y1 >= SMALLEST) this.pen = box;
    this.redraw();
    return true;
  }

  listen() {
    const canvas = $("overlay");
    const at = (event) => {
      const frame = canvas.getBoundingClientRect(),
        scale = this.size.width / frame.width;
      const clip = (value, top) => Math.min(Math.max(value, 0), top);
      return {
        x: clip((event.clientX - frame.left) * scale, this.size.width),
        y: clip((event.clientY - frame.top) * scale, this.size.height),
      };
    };
    let from = null;
    canvas.addEventListener("pointerdown", (event) => {
      if (!this.request || !this.size.width) return;
      const { x, y } = at(event);
      if (this.drawing) {
        from = { x, y };
        canvas.setPointerCapture(event.pointerId);
        return;
      }
      this.onPick({ x, y });
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!from) return;
      const to = at(event);
      this.pen = { x1: Math.min(from.x, to.x), y1: Math.min(from.y, to.y), x2: Math.max(from.x, to.x), y2: Math.max(from.y, to.y) };
      this.redraw();
    });
    canvas.addEventListener("pointerup", () => {
      const begun = from,
        { x1, y1, x2, y2 } = this.pen || { x1: 0, y1: 0, x2: 0, y2: 0 };
      from = null;
      if (!begun) return;
      if (x2 - x1 >= SMALLEST && y2 - y1 >= SMALLEST) {
        this.take();
        return;
      }
      this.pen = null;
      this.redraw();
      this.onPick(begun); // a touch, not a box
    });
    canvas.addEventListener("pointercancel", () => {
      from = null;
      this.pen = null;
      this.redraw();
    });
  }
}

// The name of a drawn box: A, B, ... Z, A1, ...
export function letter(index) {
  return String.fromCharCode(65 + (index % 26)) + (Math.floor(index / 26) || "");
}

function label(object) {
  return STRINGS.verdicts[object.verdict] && STRINGS.labels[object.label] + ": " + STRINGS.verdicts[object.verdict];
}

// Whether two boxes are the same place, by the limit of the gate.
export function sameBox(a, b) {
  const both = shared(a, b),
    area = (box) => (box.x2 - box.x1) * (box.y2 - box.y1);
  return both > 0 && both / (area(a) + area(b) - both) >= SAME_PLACE_IOU;
}

function shared(a, b) {
  return Math.max(0, Math.min(a.x2, b.x2) - Math.max(a.x1, b.x1)) * Math.max(0, Math.min(a.y2, b.y2) - Math.max(a.y1, b.y1));
}
