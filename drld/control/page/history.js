// The page's memory: some minutes of each limit that the daemon has reported.
//
// The daemon reports totals. A rate is the difference of two totals, divided by the time between the
// ticks that counted them. So rates are exact even if an answer is late.

export const SPAN_S = 300;
export const GAP_S = 5; // After this time without an answer, the chart has a gap.
const MOST_LIMITS = 200; // The limits that were reported last are kept.
const OWN_COUNTERS = ["forwarded_bytes", "dropped_bytes", "marked_bytes"];

export class History {
  constructor() {
    this.limits = new Map(); // By name, in the order of their last report.
    this.counters = new Set(OWN_COUNTERS);
  }

  // Take an answer of /v1/live.
  take(report) {
    const uptime = report.status.uptime_s;
    for (const limit of report.limits) {
      let kept = this.limits.get(limit.name);
      if (!kept || kept.uptime > uptime || kept.limit.unit !== limit.unit) {
        kept = { samples: [], rates: {} };
      }
      this.limits.delete(limit.name);
      this.limits.set(limit.name, kept);
      this.#measure(kept, limit, uptime);
      const { rates } = kept;
      // The host's clock may have been set back: samples of a time to come would hide the new ones.
      while (kept.samples.at(-1)?.t > report.t) kept.samples.pop();
      kept.samples.push({ t: report.t, rates, levels: limit.waits ?? {}, ...parts(limit, rates) });
      while (kept.samples[0].t < report.t - SPAN_S - 2 * GAP_S) kept.samples.shift();
    }
    for (const name of this.limits.keys()) {
      if (this.limits.size <= MOST_LIMITS) break;
      this.limits.delete(name);
    }
  }

  #measure(kept, limit, uptime) {
    const counted = uptime - limit.counted_age_s;
    if (kept.limit) {
      // A limit that was quiescent was counted long ago.
      const most = uptime - kept.uptime + limit.interval_s;
      const seconds = Math.min(counted - kept.counted, most);
      // Without a tick since, the rates are still those of before.
      if (seconds > 0) {
        kept.rates = {};
        for (const key of this.counters) {
          const scale = key.endsWith("_bytes") && limit.unit === "bytes" ? 8 : 1;
          const change = limit[key] - kept.limit[key];
          kept.rates[key] = change >= 0 ? (change * scale) / seconds : null;
        }
        kept.counted = counted;
        kept.limit = limit;
      }
    } else {
      kept.counted = counted;
      kept.limit = limit;
    }
    kept.latest = limit;
    kept.uptime = uptime;
  }
}

const REST = "all other limiters";

// The use or the division of a limit, as far as this limiter knows it.
//
// The limiter knows the rate that it forwards itself. Others answer with their rates, if their version
// can. Until then, the limiter knows their gossip: demand in bit/s, or a weight. The share of a weight
// is its part of all weights. The rest of the sum belongs to all other limiters together.
function parts(limit, rates) {
  const { fleet, limit_in_force_bps: inForce, measured } = limit;
  const here = rates.forwarded_bytes ?? null;
  const known = { rate: limit.rate_bps, inForce, local: limit.local_limit_bps, here };
  if (measured.length) {
    const others = measured.map((it) => [it.peer || REST, it.forwarded_bps]);
    return { ...known, others: new Map(others), measured: true };
  }
  const told = new Map(limit.told.map((it) => [it.peer, it.value]));
  const rest = fleet.remote - limit.told.reduce((sum, it) => sum + it.value, 0);
  if (rest > 1e-6 * fleet.remote) told.set("the others", rest);
  const total = fleet.local + fleet.remote;
  let scale = 0;
  if (total > 0) {
    scale = fleet.quantity === "weight" ? inForce / total : Math.min(1, inForce / total);
  }
  const others = new Map([...told].map(([name, value]) => [name, value * scale]));
  return { ...known, others, measured: false };
}
