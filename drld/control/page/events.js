// The time line: events of the daemon, and faults that its counters show.

import { clock } from "./format.js";

const MOST = 100;
const QUIET_S = 10; // Least time between two events of a counter, by a clock that may be set back.
const KINDS = { daemon: "start", reload: "reload", change: "change", peer: "peer", fault: "fault" };

// Counters of faults: a growth is an event, because the daemon logs no line for it.
export class Faults {
  constructor() {
    this.names = {};
    this.said = new Map(); // By counter: time of its last event, and its value then.
  }

  name(names) {
    Object.assign(this.names, names);
  }

  since({ t, status }) {
    const counters = Object.entries(this.names).map(([key, text]) => [
      text,
      status.datapath.counters[key] ?? 0,
    ]);
    counters.push(["gossip was flooded with bad datagrams", status.gossip.floods]);
    for (const [error, count] of Object.entries(status.gossip.errors)) {
      counters.push([`gossip: ${error}`, count]);
    }
    const found = [];
    for (const [text, count] of counters) {
      const before = this.said.get(text);
      if (!before || count < before.count) {
        this.said.set(text, { t: 0, count });
      } else if (count > before.count && Math.abs(t - before.t) >= QUIET_S) {
        found.push({ t, kind: "fault", text: `${text}: ${count - before.count} times` });
        this.said.set(text, { t, count });
      }
    }
    return found;
  }
}

export function mergeEvents(before, ...more) {
  return [...before, ...more.flat()].sort((a, b) => a.t - b.t).slice(-MOST);
}

// The daemon's number of its newest event. If its clock was set back, that is not the latest in time.
export function lastNumber(events) {
  return Math.max(0, ...events.map((it) => it.number ?? 0));
}

let drawn = null;

export function showEvents(events) {
  const newest = events.at(-1);
  if (newest === drawn) return;
  drawn = newest;
  const list = document.querySelector("#events");
  const items = [...events].reverse().map((event) => {
    const item = document.createElement("li");
    item.className = event.kind;
    const time = document.createElement("time");
    time.dateTime = new Date(event.t * 1000).toISOString();
    time.textContent = clock(event.t);
    const kind = document.createElement("b");
    kind.textContent = KINDS[event.kind] ?? event.kind;
    const text = document.createElement("span");
    text.textContent = event.text;
    item.append(time, " ", kind, " ", text);
    return item;
  });
  list.replaceChildren(...items);
}
