// Numbers in words, as the command line writes them.

export const count = (value) => (value === null || value === undefined ? "–" : Math.round(value).toLocaleString("en"));

// `1 record`, `1,204 records`.
export const counted = (value, one, more) => `${count(value)} ${Math.round(value) === 1 ? one : more ?? `${one}s`}`;

export const rate = (value) => `${count(value)}/s`;

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (value < 1024) return `${unit === "B" ? value : value.toFixed(1)} ${unit}`;
    value /= 1024;
  }
  return `${value.toFixed(1)} TiB`;
}

// From seconds.
export function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 0) return `-${span(-seconds)}`;
  if (seconds < 1) return `${(seconds * 1000).toFixed(0)} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const whole = Math.floor(seconds);
  const parts = [[Math.floor(whole / 86400), "d"], [Math.floor(whole / 3600) % 24, "h"], [Math.floor(whole / 60) % 60, "min"],
    [whole % 60, "s"]];
  const first = parts.findIndex(([number]) => number > 0);
  return parts.slice(first, first + 2).filter(([number]) => number > 0).map(([number, unit]) => `${number} ${unit}`).join(" ");
}

// From milliseconds since 1970.
export function moment(ms) {
  const date = new Date(ms);
  return Number.isNaN(date.getTime()) ? String(ms) : date.toISOString().replace("T", " ").replace(/\.\d+Z/, " UTC");
}

export const share = (msPerSecond) => Math.max(0, Math.min(1, (msPerSecond ?? 0) / 1000));
