// One limit: how it is divided among the limiters, and the panels of its plane.

import { Chart } from "./chart.js";
import { amount, axis, delays, rate } from "./format.js";

const STACK_HEIGHT = 280;
const PANEL_HEIGHT = 130;
const MOST_NAMED = 5; // People tell this many colours apart; the other limiters share a layer.

// The limiters with the largest parts of the visible time, ordered by name.
function largestOf(samples) {
  const largest = new Map();
  for (const { others } of samples) {
    for (const [name, part] of others) {
      largest.set(name, Math.max(part, largest.get(name) ?? 0));
    }
  }
  const ranked = [...largest].sort((a, b) => b[1] - a[1]).map(([name]) => name);
  return [ranked.slice(0, MOST_NAMED).sort(), ranked.slice(MOST_NAMED)];
}

function titleOf(peer, { told }, measured) {
  if (measured) return `${peer}, forwarded`;
  const behind = (told.find((it) => it.peer === peer)?.limiters ?? 1) - 1;
  return behind > 0 ? `${peer} and ${behind} behind it, share` : `${peer}, share`;
}

// Rates are stacked on rates, and shares on shares: a time has one kind.
function layersOf(samples, here, limit) {
  const { measured } = samples.at(-1);
  const alike = samples.filter((it) => it.measured === measured);
  const [named, rest] = largestOf(alike);
  const layers = [{ name: "here", title: `${here}, forwarded`, of: (it) => it.here }];
  if (!measured) {
    layers.push({
      name: "unused",
      title: `${here}, share not used`,
      of: (it) => (it.here === null ? null : Math.max((it.local ?? 0) - it.here, 0)),
    });
  }
  const known = (it) => it.here !== null && it.measured === measured;
  layers.push(
    ...named.map((name, index) => ({
      name: `other other${index}`,
      title: titleOf(name, limit, measured),
      of: (it) => (known(it) ? (it.others.get(name) ?? 0) : null),
    })),
  );
  if (rest.length) {
    const sum = (it) => rest.reduce((total, name) => total + (it.others.get(name) ?? 0), 0);
    const title = `all others, ${measured ? "forwarded" : "share"}`;
    layers.push({ name: "other rest", title, of: (it) => (known(it) ? sum(it) : null) });
  }
  return layers;
}

// The number of other limiters that answer, unless all do.
function answering({ measured, fleet }, { peers }) {
  const count = measured.reduce((sum, it) => sum + it.limiters, 0);
  if (!peers.configured || count === peers.configured) return "";
  return count
    ? ` · rates of ${count} of ${peers.configured} other limiters`
    : ` · of the others the shares (${fleet.quantity}s) that they tell`;
}

const LINES = [
  { name: "inforce", title: "limit in force", of: (it) => it.inForce },
  { name: "global", title: "global limit", of: (it) => it.rate },
];

export class Detail {
  constructor() {
    this.section = document.querySelector("#shown");
    this.name = document.querySelector("#shown-name");
    this.facts = document.querySelector("#shown-facts");
    this.legend = document.querySelector("#legend tbody");
    this.panelBox = document.querySelector("#panels");
    this.panels = [];
    this.plane = null;
  }

  show(report, kept, planeOf, events) {
    const present = kept?.samples.at(-1)?.t === report.t;
    this.section.hidden = !present;
    if (!present) return;
    this.stack ??= new Chart(document.querySelector("#stack"), STACK_HEIGHT);
    const limit = kept.latest;
    const { samples } = kept;
    const { name: here } = report.status;
    const now = samples.at(-1);
    const format = (value) => rate(value, limit.unit);
    const drops = limit.drop_probability
      ? `, drops ${(100 * limit.drop_probability).toPrecision(2)} % at random`
      : "";
    this.name.textContent = limit.name;
    this.facts.textContent =
      `${limit.mode} · ${limit.allocator} · demand here ${format(limit.demand_bps)}` +
      ` · flows here: ${limit.flows}${drops}${delays(limit.waits)}${answering(limit, report.status)}`;
    const layers = layersOf(samples, here, limit);
    this.#showLegend([...LINES].reverse().concat([...layers].reverse()), now, format);
    const label =
      `${limit.name} in the last 5 minutes. Now ${here} forwards ${format(now.here)}` +
      ` of the global limit of ${format(now.rate)}. The table beside it has all parts.`;
    const all = { samples, now: report.t, events };
    const ofUnit = (value) => axis(value, limit.unit);
    this.stack.draw({ ...all, axis: ofUnit, layers, lines: LINES, label });
    this.#showPanels(planeOf(limit), limit, kept, all);
  }

  #showLegend(entries, now, format) {
    while (this.legend.children.length > entries.length) this.legend.lastChild.remove();
    entries.forEach(({ name, title, of }, index) => {
      let row = this.legend.children[index];
      if (!row) {
        row = document.createElement("tr");
        row.append(document.createElement("th"), document.createElement("td"));
        row.firstChild.scope = "row";
        row.firstChild.append(document.createElement("i"), document.createElement("span"));
        row.lastChild.className = "number";
        this.legend.append(row);
      }
      row.querySelector("i").className = `key ${name}`;
      row.querySelector("span").textContent = title;
      row.lastChild.textContent = format(of(now));
    });
  }

  #showPanels(plane, limit, kept, all) {
    if (this.plane !== plane) {
      this.plane = plane;
      this.panels = (plane?.panels ?? []).map((panel, index) => new PanelView(panel, index));
      this.panelBox.replaceChildren(...this.panels.map((it) => it.figure));
    }
    for (const panel of this.panels) panel.show(limit, kept, all);
  }
}

class PanelView {
  constructor(panel, index) {
    this.panel = panel;
    this.figure = document.createElement("figure");
    this.caption = document.createElement("figcaption");
    const box = document.createElement("div");
    box.id = `panel-${index}`;
    this.figure.append(this.caption, box);
    this.chart = new Chart(box, PANEL_HEIGHT);
    const title = document.createElement("b");
    title.textContent = panel.title;
    this.caption.append(title);
    this.values = panel.series.map(({ label, tone }) => {
      const part = document.createElement("span");
      const key = document.createElement("i");
      key.className = `key line ${tone}`;
      const value = document.createElement("span");
      part.append(key, `${label} `, value);
      this.caption.append(part);
      return value;
    });
  }

  show(limit, kept, all) {
    const { title, counts, series } = this.panel;
    const unit = counts === "unit" ? limit.unit : limit.items;
    const level = counts === "level";
    const format = (value) => (level ? amount(value) : rate(value, unit));
    const of = (key, it) => (level ? it.levels : it.rates)[key] ?? null;
    const now = series.map(({ key }) => format(of(key, kept.samples.at(-1))));
    now.forEach((text, index) => {
      this.values[index].textContent = text;
    });
    this.chart.draw({
      ...all,
      axis: (value) => (level ? amount(value) : axis(value, unit)),
      lines: series.map(({ key, tone }) => ({ name: tone, of: (it) => of(key, it) })),
      label: `${title}. Now ${series.map((it, index) => `${it.label} ${now[index]}`).join(", ")}.`,
    });
  }
}
