/* SPDX-License-Identifier: Apache-2.0 */
"use strict";
(() => {
  const study = JSON.parse(document.getElementById("study").textContent);
  if (!study || !study.images.length) return;
  const at = (id) => document.getElementById(id);
  const figure = Object.fromEntries(study.names.map((name, index) => [name, index]));
  const state = { dataset: 0, model: 0, rate: study.reference, variant: "", order: 0, filter: 0, image: "", boxes: true };

  // what the state selects
  const entry = (image, variant) => (image.models[study.models[state.model]] || {})[variant];
  // some variants are looked at with one rate only, which is then that of both pictures
  const rate = (image) => {
    const found = state.variant && entry(image, state.variant);
    return !found || found.r[state.rate] ? state.rate : found.r.findIndex(Boolean);
  };
  const cell = (image, variant) => {
    const found = entry(image, variant);
    return found && found.r[rate(image)];
  };
  const value = (image, variant, name) => {
    const found = cell(image, variant);
    return found ? found.f[figure[name]] : null;
  };
  const change = (image, name) => {
    const [clean, moved] = [value(image, "clean", name), value(image, state.variant, name)];
    return clean === null || moved === null ? null : moved - clean;
  };
  const low = (number) => (number === null ? Infinity : number);
  const high = (number) => (number === null ? Infinity : -number);
  const size = (number) => (number === null ? null : Math.abs(number));
  const orders = [
    ["lowest mAP", (image) => low(value(image, "clean", "map")), "map"],
    ["most uncertain what it is (SE)", (image) => high(value(image, "clean", "shannon_entropy")), "shannon_entropy"],
    ["most uncertain where it is (TV/area)", (image) => high(value(image, "clean", "relative_total_variance")), "relative_total_variance"],
    ["most changed: mAP", (image) => high(size(change(image, "map"))), "map", true],
    ["most changed: SE", (image) => high(size(change(image, "shannon_entropy"))), "shannon_entropy", true],
    ["most novel (DiL)", (image) => high(value(image, "clean", "dil")), "dil"],
    ["by name", () => 0, "map"],
  ];
  const either = (test) => test("clean") || (state.variant !== "" && test(state.variant));
  const filters = [
    ["all pictures", () => true],
    ["something is missed", (image) => either((variant) => value(image, variant, "false_negatives") > 0)],
    ["something is wrong", (image) => either((variant) => value(image, variant, "false_positives") > 0)],
    ["mAP falls by 0.1 or more", (image) => { const by = change(image, "map"); return by !== null && by <= -0.1; }],
  ];
  const variants = () => {
    const found = new Set();
    for (const image of study.images) {
      if (image.dataset !== study.datasets[state.dataset]) continue;
      for (const name of Object.keys(image.models[study.models[state.model]] || {})) if (name !== "clean") found.add(name);
    }
    return [...found];
  };
  const called = (variant) => {
    const [, kind, number] = variant.match(/^(adv|patch)-(\d+)$/) || [];
    if (kind) return `${kind === "adv" ? "attack" : "patch"} ${Number(number) + 1}`;
    return variant.startsWith("from ") ? `attack on ${variant.slice(5)}` : variant;
  };
  const chosen = () => {
    const part = at("name").value.trim().toLowerCase(), key = orders[state.order][1];
    return study.images
      .filter((image) => image.dataset === study.datasets[state.dataset] && cell(image, "clean"))
      .filter((image) => !state.variant || cell(image, state.variant))
      .filter((image) => image.name.toLowerCase().includes(part) && filters[state.filter][1](image))
      .map((image) => [key(image), image])
      .sort(([a, one], [b, other]) => (a === b ? one.name.localeCompare(other.name) : a - b))
      .map(([, image]) => image);
  };

  // what is drawn
  const make = (name, fields = {}, ...children) => {
    const svg = ["svg", "use", "rect", "text"].includes(name);
    const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    for (const [key, text] of Object.entries(fields)) made.setAttribute(key, text);
    made.append(...children);
    return made;
  };
  const shown = (number) => (number === null ? "–" : Number.isInteger(number) ? String(number) : number.toPrecision(3));
  const frame = (x1, y1, x2, y2, kind) => make("rect", { class: kind, x: x1, y: y1, width: x2 - x1, height: y2 - y1 });
  const view = (image, variant) => {
    const seen = entry(image, variant), { w, h, t } = study.pictures[seen.p], letters = w * 0.032;
    const title = `${image.name}, ${variant === "clean" ? "clean" : called(variant)}`;
    const svg = make("svg", { class: "seen", viewBox: `0 0 ${w} ${h}`, "font-size": letters, role: "img", "aria-label": title });
    svg.append(make("use", { href: `#p${seen.p}` }));
    if (state.boxes) {
      for (const [, ...box] of t) svg.append(frame(...box, "truth"));
      for (const [label, score, x1, y1, x2, y2, right] of cell(image, variant).b) {
        if (score < Number(at("floor").value)) continue;
        svg.append(frame(x1, y1, x2, y2, `c${label}${right ? "" : " wrong"}`));
        if (!label) continue; // background is many boxes in some models: a frame says enough
        const side = x1 > 0.7 * w ? { x: x2, "text-anchor": "end" } : { x: x1 };
        const place = { class: `c${label}`, ...side, y: Math.max(y1 - 3, letters) };
        svg.append(make("text", place, `${study.labels[label]} ${score.toFixed(2)}`));
      }
    }
    return make("figure", {}, make("figcaption", {}, title), svg);
  };
  const row = (kind, words) => make("tr", {}, ...words.map((word) => make(kind, {}, word)));
  const table = (image, names) => {
    const head = ["", ...names.map((name) => (name === "clean" ? name : called(name)))];
    const lines = study.names.map((name, index) => {
      const line = [study.figures[index], ...names.map((variant) => shown(value(image, variant, name)))];
      return row("td", names.length > 1 ? [...line, shown(change(image, name))] : line);
    });
    at("measured").replaceChildren(row("th", names.length > 1 ? [...head, "change"] : head), ...lines);
  };
  const told = (image) => {
    const found = state.variant && entry(image, state.variant), parts = [];
    if (found && found.a) {
      const { rms, linf, iterations, targets, fooled } = found.a;
      parts.push(`The attack changed the picture by ${shown(rms)} grey levels (RMS), at most ${shown(linf)}, in ${shown(iterations)} iterations; ${fooled} of ${targets} targets are fooled.`);
    }
    if (rate(image) !== state.rate) parts.push(`Both at a dropout rate of ${study.rates[rate(image)]}, the only one for these attacks.`);
    at("attack").textContent = parts.join(" ");
  };
  const draw = () => {
    const images = chosen(), [, , name, moved] = orders[state.order];
    let here = images.findIndex((image) => image.name === state.image);
    if (here < 0) here = 0;
    at("count").textContent = images.length ? `Picture ${here + 1} of ${images.length}` : "No such picture.";
    const focused = at("images").contains(document.activeElement);
    at("images").replaceChildren(...images.map((image, index) => {
      const number = moved ? change(image, name) : value(image, "clean", name);
      const button = make("button", { type: "button", "aria-current": index === here, title: study.figures[figure[name]] });
      button.append(make("span", {}, image.name), make("span", {}, shown(number)));
      button.addEventListener("click", () => { state.image = image.name; draw(); });
      return make("li", {}, button);
    }));
    at("views").replaceChildren();
    at("measured").replaceChildren();
    at("attack").textContent = "";
    at("floor-shown").textContent = Number(at("floor").value).toFixed(2);
    if (!images.length) return;
    const image = images[here], names = ["clean", ...(state.variant ? [state.variant] : [])];
    state.image = image.name;
    at("views").append(...names.map((variant) => view(image, variant)));
    table(image, names);
    told(image);
    const list = at("images"), line = list.children[here];
    if (focused) line.firstChild.focus({ preventScroll: true });
    if (line.offsetTop < list.scrollTop + list.offsetTop) list.scrollTop = line.offsetTop - list.offsetTop;
    const below = line.offsetTop - list.offsetTop + line.offsetHeight - list.clientHeight;
    if (below > list.scrollTop) list.scrollTop = below;
  };

  // what a person does
  const fill = (id, words, current) => at(id).replaceChildren(...words.map((word, index) => new Option(word, index, false, index === current)));
  const offer = () => {
    const names = variants();
    if (!names.includes(state.variant)) state.variant = names[0] || "";
    fill("variant", names.length ? names.map(called) : ["nothing"], Math.max(names.indexOf(state.variant), 0));
  };
  const choices = { dataset: study.datasets, model: study.models, rate: study.rates, order: orders, filter: filters };
  const choose = (id, index) => {
    if (id === "variant") state.variant = variants()[index] || "";
    else state[id] = index;
    if (id === "order" || id === "filter") state.image = ""; // the first one is what was asked for
    if (id === "dataset" || id === "model") offer();
    at(id).selectedIndex = index;
    draw();
  };
  const toggle = () => {
    state.boxes = !state.boxes;
    at("boxes").textContent = state.boxes ? "shown" : "hidden";
    at("boxes").setAttribute("aria-pressed", state.boxes);
    draw();
  };
  for (const [id, all] of Object.entries(choices)) {
    fill(id, all.map((one) => (Array.isArray(one) ? one[0] : one)), state[id]);
    at(id).addEventListener("change", () => choose(id, at(id).selectedIndex));
  }
  at("dataset").parentElement.hidden = study.datasets.length < 2;
  at("variant").addEventListener("change", () => choose("variant", at("variant").selectedIndex));
  at("floor").value = study.faint;
  for (const id of ["floor", "name"]) at(id).addEventListener("input", draw);
  at("boxes").addEventListener("click", toggle);
  const keys = { m: "model", r: "rate", v: "variant", s: "order", f: "filter" };
  const step = (by) => {
    const images = chosen(), here = images.findIndex((image) => image.name === state.image);
    if (images.length) state.image = images[(here + by + images.length) % images.length].name;
    draw();
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || event.target.closest("input, select, textarea")) return;
    const key = event.key.toLowerCase(), id = keys[key], by = event.shiftKey ? -1 : 1;
    if (key === "arrowright" || key === "arrowleft") step(key === "arrowright" ? 1 : -1);
    else if (key === "b") toggle();
    else if (id) choose(id, (at(id).selectedIndex + by + at(id).length) % at(id).length);
    else return;
    event.preventDefault();
  });
  offer();
  at("gallery").hidden = true;
  at("explorer").hidden = false;
  draw();
})();
