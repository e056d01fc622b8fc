// Charts in SVG. Colours are classes of style.css. No text from outside becomes markup.

import { GAP_S, SPAN_S } from "./history.js";

const SVG = "http://www.w3.org/2000/svg";
const MARGIN = { top: 16, right: 8, bottom: 20, left: 68 };
const STEPS = [1, 2, 2.5, 5, 10];
const GLYPHS = { daemon: "S", reload: "R", change: "C", peer: "P", fault: "!" };

function element(name, attributes, parent, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
}

// The values of the y axis: three to six round ones, the last at or above `most`.
function ticks(most) {
  if (most <= 0) return [0];
  const least = most / 5;
  const power = 10 ** Math.floor(Math.log10(least));
  const step = power * STEPS.find((it) => it * power >= least * 0.999);
  return Array.from({ length: Math.ceil(most / step - 1e-9) + 1 }, (_, index) => index * step);
}

// Runs of samples without a gap; `values` is one array of a sample's numbers, or null.
function runs(samples, values) {
  const found = [];
  let before = null;
  for (const sample of samples) {
    const at = values(sample);
    if (at !== null) {
      if (before === null || sample.t - before > GAP_S) found.push([]);
      found.at(-1).push([sample.t, at]);
    }
    before = at === null ? null : sample.t;
  }
  return found;
}

// Draws into a box, and takes the box's width. Each answer of the daemon redraws the chart: it has few paths.
export class Chart {
  constructor(box, height, { axes = true, width = null } = {}) {
    this.axes = axes;
    this.width = width;
    this.height = height;
    this.box = box;
    this.svg = element("svg", axes ? { role: "img" } : { "aria-hidden": "true" }, box);
  }

  // layers: {name, of(sample) -> rate or null}, from the bottom; lines: {name, of}, above them.
  draw({ samples, now, layers = [], lines = [], events = [], axis, label = "" }) {
    const width = this.width ?? Math.max(this.box.clientWidth, 160);
    const inner = this.axes ? MARGIN : { top: 1, right: 0, bottom: 1, left: 0 };
    const [x0, x1] = [inner.left, width - inner.right];
    const [y0, y1] = [this.height - inner.bottom, inner.top];
    this.svg.replaceChildren();
    this.svg.setAttribute("viewBox", `0 0 ${width} ${this.height}`);
    this.svg.setAttribute("width", width);
    this.svg.setAttribute("height", this.height);
    if (this.axes) this.svg.setAttribute("aria-label", label);
    const seen = samples.filter((it) => it.t >= now - SPAN_S - GAP_S);
    const sums = seen.map((it) => layers.reduce((sum, layer) => sum + (layer.of(it) ?? 0), 0));
    const tops = seen.flatMap((it) => lines.map((line) => line.of(it) ?? 0));
    const most = Math.max(0, ...sums, ...tops.map((it) => it * 1.02));
    const scale = this.axes ? ticks(most) : [most];
    const highest = scale.at(-1) || 1;
    const x = (t) => (x0 + ((t - now + SPAN_S) / SPAN_S) * (x1 - x0)).toFixed(1);
    const y = (value) => (y0 - (value / highest) * (y0 - y1)).toFixed(1);
    const clip = `${this.box.id}-clip`;
    let plot = this.svg;
    if (this.axes) {
      this.#grid(scale, { x0, x1, y0 }, y, axis);
      const path = element("clipPath", { id: clip }, element("defs", {}, this.svg));
      element("rect", { x: x0, y: 0, width: Math.max(x1 - x0, 0), height: this.height }, path);
      plot = element("g", { "clip-path": `url(#${clip})` }, this.svg);
    }
    this.#layers(plot, seen, layers, x, y);
    for (const line of lines) {
      for (const run of runs(seen, line.of)) {
        const d = run.map(([t, at], index) => `${index ? "L" : "M"}${x(t)} ${y(at)}`).join("");
        element("path", { class: `line ${line.name}`, d }, plot);
      }
    }
    const recent = events.filter((it) => it.t >= now - SPAN_S);
    for (const event of recent) this.#event(plot, event, x(event.t), y0);
  }

  #grid(scale, { x0, x1, y0 }, y, axis) {
    for (const value of scale) {
      element("path", { class: "grid", d: `M${x0} ${y(value)}H${x1}` }, this.svg);
      const at = { class: "tick", x: x0 - 8, y: Number(y(value)) + 4, "text-anchor": "end" };
      element("text", at, this.svg, axis(value));
    }
    for (let ago = 0; ago <= SPAN_S; ago += 60) {
      const at = x1 - (ago / SPAN_S) * (x1 - x0);
      const anchor = ago ? "middle" : "end";
      const text = ago ? `−${ago / 60} min` : "now";
      element("text", { class: "tick", x: at, y: y0 + 15, "text-anchor": anchor }, this.svg, text);
    }
  }

  #layers(plot, samples, layers, x, y) {
    const below = new Map(samples.map((it) => [it.t, 0]));
    for (const { name, of } of layers) {
      for (const run of runs(samples, of)) {
        const floor = run.map(([t]) => `L${x(t)} ${y(below.get(t))}`).reverse();
        for (const [t, value] of run) below.set(t, below.get(t) + value);
        const top = run.map(([t], index) => `${index ? "L" : "M"}${x(t)} ${y(below.get(t))}`);
        element("path", { class: `layer ${name}`, d: `${top.join("")}${floor.join("")}Z` }, plot);
      }
    }
  }

  #event(plot, event, at, y0) {
    const group = element("g", { class: `event ${event.kind}` }, plot);
    element("path", { d: `M${at} 14V${y0}` }, group);
    element("circle", { cx: at, cy: 8, r: 7 }, group);
    const middle = { x: at, y: 11.5, "text-anchor": "middle" };
    element("text", middle, group, GLYPHS[event.kind] ?? "?");
    element("title", {}, group, event.text);
  }
}
