// The newest checkpoints as a timeline, and one of them with the parts of its subtasks.

import { html, show, svg, table } from "./elements.js";
import { bytes, count, counted, moment, span } from "./words.js";

const KEPT = 1000, BAR = 9, GAP = 3, HIGH = 120, LEFT = 64;
const PARTS = [["start_delay", "delay"], ["alignment", "alignment"], ["sync", "sync"], ["async_", "async"], ["finalise", "finalise"]];

const rows = new Map();
let chosen = null; // null: always the newest that has ended
let drawn = "";
let atEnd = true;

export function remember(newest) {
  for (const row of newest) rows.set(row.id, row);
  const surplus = [...rows.keys()].sort((a, b) => a - b).slice(0, -KEPT);
  for (const id of surplus) rows.delete(id);
}

// Whether one of them was known before.
export const joins = (newest) => newest.some((row) => rows.has(row.id));

const inOrder = () => [...rows.values()].sort((a, b) => a.id - b.id);

export function shownId() {
  if (chosen !== null && rows.has(chosen)) return chosen;
  const ended = inOrder().filter((row) => row.status !== "in_progress");
  return ended.at(-1)?.id ?? inOrder().at(-1)?.id ?? null;
}

function said(row) {
  const status = row.status === "completed" ? `${span(row.duration)}` : row.status.replace("_", " ");
  return `${row.kind} ${row.id}, ${moment(row.trigger_time * 1000)}: ${status}${row.unaligned ? ", unaligned" : ""}`;
}

function bar(row, index, scale, choose) {
  const x = LEFT + index * (BAR + GAP), base = HIGH + 6;
  const total = row.duration ?? 0, pieces = [];
  // The parts are the largest of any subtask, and those may be different ones: they are drawn in proportion.
  const known = PARTS.reduce((sum, [field]) => sum + row[field], 0);
  let top = base;
  for (const [field, name] of PARTS) {
    const high = known > 0 ? (row[field] / Math.max(known, total)) * total * scale : 0;
    if (high > 0.2) pieces.push(svg("rect", { x, y: top - high, width: BAR, height: high, class: name }));
    top -= high;
  }
  const rest = base - total * scale;
  if (row.status === "completed" && top - rest > 0.5) pieces.push(svg("rect", { x, y: rest, width: BAR, height: top - rest, class: "idle" }));
  if (row.status === "failed") pieces.push(svg("text", { x: x + BAR / 2, y: base - 3, "text-anchor": "middle", class: "bad" }, "✕"));
  if (row.status === "in_progress") pieces.push(svg("text", { x: x + BAR / 2, y: base - 3, "text-anchor": "middle", class: "faint" }, "…"));
  return svg("g", {
    id: `checkpoint-${row.id}`, role: "option", "aria-label": said(row), "aria-selected": String(row.id === shownId()), onclick: () => choose(row.id),
  }, svg("title", {}, said(row)), svg("rect", { x: x - GAP / 2, y: 0, width: BAR + GAP, height: base, fill: "transparent" }), pieces,
    row.id === shownId() ? svg("rect", { x: x - 1.5, y: 1, width: BAR + 3, height: base + 2, class: "chosen" }) : null);
}

export function drawTimeline(again) {
  const all = inOrder();
  const key = JSON.stringify([shownId(), all.at(0)?.id, all.at(-1), all.filter((row) => row.status === "in_progress").length]);
  if (key === drawn) return;
  drawn = key;
  if (all.length === 0) return show("timeline", html("p", {}, "None has begun yet."));
  const most = Math.max(0.001, ...all.map((row) => row.duration ?? 0)), scale = (HIGH - 10) / most;
  const choose = (id) => { chosen = id; again(); };
  const step = (event) => {
    const place = all.findIndex((row) => row.id === shownId());
    const to = { ArrowLeft: place - 1, ArrowRight: place + 1, Home: 0, End: all.length - 1 }[event.key];
    if (to === undefined || !all[to]) return;
    event.preventDefault();
    choose(all[to].id);
  };
  const place = document.getElementById("timeline");
  atEnd = place.scrollLeft + place.clientWidth >= place.scrollWidth - 30;
  const left = place.scrollLeft;
  show("timeline", svg("svg", {
    width: LEFT + all.length * (BAR + GAP) + 10, height: HIGH + 14, id: "bars", tabindex: 0, role: "listbox",
    "aria-label": `The newest ${counted(all.length, "checkpoint")}, oldest first`, "aria-activedescendant": `checkpoint-${shownId()}`, onkeydown: step,
  },
    svg("text", { x: LEFT - 8, y: 18, "text-anchor": "end", class: "faint" }, span(most)),
    svg("text", { x: LEFT - 8, y: HIGH + 6, "text-anchor": "end", class: "faint" }, "0"),
    all.map((row, index) => bar(row, index, scale, choose))));
  place.scrollLeft = chosen === null && atEnd ? place.scrollWidth : left;
  if (chosen !== null) document.getElementById(`checkpoint-${chosen}`)?.scrollIntoView({ block: "nearest", inline: "nearest" });
}

export function drawCheckpoint(row) {
  if (!row) return show("checkpoint");
  const facts = [
    said(row), `${bytes(row.size)}, ${bytes(row.written)} of them new`,
    `in flight ${counted(row.in_flight_records, "record")} (${bytes(row.in_flight_bytes)})`, `span ${counted(row.span_records, "record")}`,
  ];
  const columns = [
    ["subtask", (one) => one.name],
    ["done after", (one) => span(one.acknowledged_after), "number"],
    ["start delay", (one) => span(one.start_delay), "number"],
    ["alignment", (one) => span(one.alignment), "number"],
    ["held", (one) => span(one.sync), "number"],
    ["writing", (one) => span(one.async_), "number"],
    ["size", (one) => bytes(one.size), "number"],
    ["in flight", (one) => bytes(one.in_flight_bytes), "number"],
    ["span", (one) => count(one.span_records), "number"],
    ["unaligned", (one) => (one.unaligned ? "yes" : "no")],
  ];
  const slowestFirst = [...row.subtasks].sort((a, b) => b.acknowledged_after - a.acknowledged_after);
  show("checkpoint", html("p", {}, facts.join("; ")), row.failure ? html("pre", {}, row.failure) : null,
    slowestFirst.length ? table("Its subtasks, the slowest first", columns, slowestFirst, "checkpoint")
      : html("p", { class: "hint" }, "The parts of its subtasks are not known, or not any more."));
}
