// The limits under the highest pressure, or the limits that match the search.

import { Chart } from "./chart.js";
import { rate } from "./format.js";

const SIZE = [160, 24];

function cell(row, text, name = "") {
  const made = document.createElement("td");
  made.className = name;
  made.textContent = text;
  row.append(made);
  return made;
}

class Row {
  constructor(name, choose, number) {
    this.row = document.createElement("tr");
    const heading = document.createElement("th");
    heading.scope = "row";
    this.button = document.createElement("button");
    this.button.type = "button";
    this.button.textContent = name;
    this.button.addEventListener("click", () => choose(name));
    heading.append(this.button);
    this.row.append(heading);
    const spark = cell(this.row, "", "spark");
    spark.id = `spark-${number}`;
    this.chart = new Chart(spark, SIZE[1], { axes: false, width: SIZE[0] });
    this.cells = Array.from({ length: 5 }, () => cell(this.row, "", "number"));
    this.mode = cell(this.row, "");
  }

  show(limit, kept, now, shown) {
    const { unit } = limit;
    const { forwarded_bytes: here, dropped_bytes: dropped, marked_bytes: marked } = kept.rates;
    const figures = [here, limit.local_limit_bps, limit.rate_bps, dropped, marked];
    figures.forEach((value, index) => {
      this.cells[index].textContent = rate(value, unit);
      this.cells[index].classList.toggle("zero", value === 0);
    });
    this.cells[3].classList.toggle("dropped", dropped > 0);
    this.cells[4].classList.toggle("marked", marked > 0);
    const unsaved = limit.unsaved.length ? ", unsaved" : "";
    this.mode.textContent = `${limit.mode}${unsaved}`;
    this.button.setAttribute("aria-pressed", String(shown));
    this.chart.draw({
      samples: kept.samples,
      now,
      layers: [{ name: "here", of: (it) => it.here }],
      lines: [{ name: "local", of: (it) => it.local }],
    });
  }
}

export class LimitTable {
  constructor(choose) {
    this.choose = choose;
    this.rows = new Map();
    this.made = 0;
    this.body = document.querySelector("#limits-table tbody");
    this.facts = document.querySelector("#limits-facts");
  }

  show({ limits, matching, status, t, find }, history, shown) {
    const listed = find
      ? limits.filter((it) => it.name.toLowerCase().includes(find.toLowerCase()))
      : limits;
    const names = listed.map((it) => it.name);
    for (const name of this.rows.keys()) if (!names.includes(name)) this.rows.delete(name);
    const rows = names.map((name) => {
      if (!this.rows.has(name)) {
        this.made += 1;
        this.rows.set(name, new Row(name, this.choose, this.made));
      }
      return this.rows.get(name).row;
    });
    // Rows that stay are not moved: a button keeps the focus.
    if (rows.some((row, index) => row !== this.body.children[index]) || rows.length !== this.body.children.length) {
      const focused = document.activeElement;
      this.body.replaceChildren(...rows);
      if (this.body.contains(focused)) focused.focus();
    }
    for (const limit of listed) {
      this.rows.get(limit.name).show(limit, history.limits.get(limit.name), t, limit.name === shown);
    }
    this.facts.textContent = found(listed.length, matching, status.limits, find);
  }
}

function found(listed, matching, all, find) {
  if (!all) return "This daemon has none.";
  const of = find ? `${matching} of ${all} found` : `${all}`;
  const which = listed < matching ? `, the ${listed} under the highest pressure shown` : "";
  return `${of}${which}`;
}
