// The daemon as a whole: its identity, and conditions that need attention.

import { duration } from "./format.js";

const STATES = { live: "live", paused: "paused", lost: "no answer from the daemon" };

function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function showState(state, reason = "") {
  const shown = document.querySelector("#state");
  write(shown, reason ? `${STATES[state]}: ${reason}` : STATES[state]);
  shown.className = state;
}

export function showFacts({ status }) {
  const { name, version, datapath, fabric, peers, uptime_s: uptime } = status;
  const fleet = peers.configured ? `${peers.configured + 1} limiters, ${fabric.name}` : "alone";
  write(document.querySelector("#name"), name);
  write(
    document.querySelector("#facts"),
    `${fleet} · ${datapath.name} datapath · up ${duration(uptime)} · version ${version}`,
  );
  const dead = status.probes?.dead ?? 0;
  document.title = `${dead ? `(${dead} dead) ` : ""}${name} · drld`;
}

function attention({ ready, config, probes, registry }) {
  const found = [];
  if (!ready) found.push("The daemon enforces no limits yet.");
  if (config.reload_error) found.push(`The last reload was refused: ${config.reload_error}`);
  if (probes?.isolated) found.push("No peer answers this limiter: check its network.");
  for (const [peer, limits] of Object.entries(probes?.disagreeing ?? {})) {
    const where = limits.length ? `: ${limits.join(", ")}` : "";
    found.push(`${peer} has a different configuration${where}.`);
  }
  if (registry && registry.state !== "connected") {
    found.push(`The registry is ${registry.state}: ${registry.error ?? "no answer yet"}`);
  }
  if (config.unsaved.length) {
    found.push(`A restart or a reload reverts unsaved changes: ${config.unsaved.join(", ")}.`);
  }
  return found;
}

export function showNotices({ status }) {
  const list = document.querySelector("#notices");
  const found = attention(status);
  list.hidden = !found.length;
  // Written only if it changes: otherwise a screen reader would read it every second.
  const before = [...list.children].map((it) => it.textContent);
  if (before.join("\n") === found.join("\n")) return;
  list.replaceChildren(
    ...found.map((text) => {
      const item = document.createElement("li");
      item.textContent = text;
      return item;
    }),
  );
}
