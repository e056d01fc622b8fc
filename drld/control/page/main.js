// Asks the daemon once a second, and has the parts of the page show the answer.

import { History } from "./history.js";
import { Faults, lastNumber, mergeEvents, showEvents } from "./events.js";
import { Detail } from "./detail.js";
import { LimitTable } from "./limits.js";
import { showPeers } from "./peers.js";
import { showFacts, showNotices, showState } from "./heading.js";

const PERIOD_MS = 1000;
const PATIENCE_MS = 10000; // A daemon that is busy, or a slow tunnel.

const history = new History();
const faults = new Faults();
let events = [];
let planes = [];
let report = null;
let shown = new URLSearchParams(location.hash.slice(1)).get("limit");
let paused = false;

const find = document.querySelector("#find");
const pause = document.querySelector("#pause");
const detail = new Detail();
const table = new LimitTable((name) => {
  shown = name;
  window.history.replaceState(null, "", `#${new URLSearchParams({ limit: name })}`);
  show();
});

async function fetched(path) {
  const answer = await fetch(path, { signal: AbortSignal.timeout(PATIENCE_MS) });
  if (!answer.ok) throw new Error(`the daemon answers with status ${answer.status}`);
  return answer.json();
}

function busiest(limits) {
  const pressure = (it) => it.demand_bps / it.rate_bps;
  return limits.reduce((most, it) => (pressure(it) > pressure(most) ? it : most)).name;
}

async function ask() {
  if (!planes.length) {
    planes = await fetched("/v1/panels");
    for (const plane of planes) {
      for (const { counts, series } of plane.panels) {
        if (counts === "level") continue;
        for (const { key } of series) history.counters.add(key);
      }
      faults.name(plane.faults);
    }
  }
  const last = lastNumber(events);
  const query = new URLSearchParams({ find: find.value, after: last });
  // The search may change before the answer comes.
  const asked = query.get("find");
  if (shown !== null) query.set("show", shown);
  const answer = await fetched(`/v1/live?${query}`);
  // A restarted daemon counts its events from 1: ask for all of them the next time.
  const again = report !== null && answer.status.uptime_s < report.status.uptime_s;
  if (again) events = events.map((it) => ({ ...it, number: 0 }));
  report = { ...answer, find: asked };
  events = mergeEvents(events, again ? [] : report.events, faults.since(report));
  history.take(report);
  if (shown === null && report.limits.length) shown = busiest(report.limits);
}

function show() {
  if (report === null) return;
  const planeOf = (limit) => planes.find((it) => it.items === limit.items);
  showFacts(report);
  showNotices(report);
  table.show(report, history, shown);
  detail.show(report, history.limits.get(shown), planeOf, events);
  showPeers(report);
  showEvents(events);
}

async function live() {
  for (;;) {
    const began = performance.now();
    // A hidden page does not ask the daemon.
    if (!document.hidden && !paused) {
      try {
        await ask();
        show();
        showState("live");
      } catch (error) {
        showState("lost", error.name === "TimeoutError" ? "it does not answer" : error.message);
      }
    }
    const rest = PERIOD_MS - (performance.now() - began);
    await new Promise((resolve) => setTimeout(resolve, Math.max(rest, PERIOD_MS / 4)));
  }
}

pause.addEventListener("click", () => {
  paused = !paused;
  pause.setAttribute("aria-pressed", String(paused));
  showState(paused ? "paused" : "live");
});
window.addEventListener("resize", show);
live();
