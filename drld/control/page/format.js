// Figures for people: three digits, and a unit that makes the value 1 to 999.

const PREFIXES = ["", "k", "M", "G", "T"];

export function number(value) {
  let power = 0;
  let rest = value;
  while (power + 1 < PREFIXES.length && Number(Math.abs(rest).toPrecision(3)) >= 1000) {
    rest /= 1000;
    power += 1;
  }
  const digits = Number(rest.toPrecision(3));
  const text = power && digits < 100 ? digits.toFixed(digits < 10 ? 2 : 1) : String(digits);
  return [text, PREFIXES[power]];
}

// A rate: bit/s where the limit counts bytes, else its items a second.
export function rate(value, unit) {
  if (value === null || value === undefined) return "–";
  const [text, prefix] = number(value);
  return unit === "bytes" ? `${text} ${prefix}bit/s` : `${text}${prefix && ` ${prefix}`} ${unit}/s`;
}

// A rate beside an axis: values are round, and room is small.
export function axis(value, unit) {
  const [text, prefix] = number(value);
  return unit === "bytes" ? `${Number(text)} ${prefix}bit/s` : `${Number(text)}${prefix && ` ${prefix}`}/s`;
}

// A number of items.
export function amount(value) {
  if (value === null || value === undefined) return "–";
  const [text, prefix] = number(value);
  return prefix ? `${text} ${prefix}` : text;
}

// The access delays of a limit whose items wait, in ms.
export function delays(waits) {
  if (!waits) return "";
  const [p50, p95, p99] = [waits.p50_s, waits.p95_s, waits.p99_s].map((it) => Number((it * 1000).toPrecision(3)));
  return ` · access delay p50 ${p50} ms, p95 ${p95} ms, p99 ${p99} ms`;
}

export function duration(seconds) {
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 100) return `${Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 100) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h` : `${Math.floor(hours / 24)} d`;
}

export function clock(unix) {
  return new Date(unix * 1000).toLocaleTimeString([], { hour12: false });
}
