// The other limiters: their health by probes, and whether their shares are in force.

import { duration } from "./format.js";

const GLYPHS = { alive: "●", suspect: "◐", dead: "✕", left: "○", unknown: "?" };

function part(item, name, text) {
  let made = item.querySelector(`.${name}`);
  if (!made) {
    made = document.createElement("span");
    made.className = name;
    if (name === "glyph") made.setAttribute("aria-hidden", "true");
    item.append(made, " ");
  }
  made.textContent = text;
}

export function showPeers({ peers, status }) {
  const { configured, connected } = status.peers;
  document.querySelector("#peers-facts").textContent = configured
    ? `${connected} of ${configured} connected`
    : "This limiter is alone.";
  const list = document.querySelector("#peers");
  const more = configured - peers.length;
  const items = peers.length + (more > 0 ? 1 : 0);
  while (list.children.length > items) list.lastChild.remove();
  while (list.children.length < items) list.append(document.createElement("li"));
  peers.forEach((peer, index) => {
    const item = list.children[index];
    if (item.className === "more") item.replaceChildren();
    item.className = peer.verdict;
    const connection = peer.connected ? "" : ", not connected";
    part(item, "glyph", GLYPHS[peer.verdict]);
    part(item, "name", peer.name);
    part(item, "verdict", `${peer.verdict}${connection}`);
    part(item, "address", peer.address);
    part(item, "age", peer.age_s === null ? "not heard directly" : `heard ${duration(peer.age_s)} ago`);
  });
  if (more > 0) {
    list.lastChild.className = "more";
    list.lastChild.textContent = `and ${more} more`;
  }
}
