// The job's graph: vertices from left to right, in the order in which records pass them.

import { html, show, svg, table } from "./elements.js";
import { bytes, count, counted, rate, share, span } from "./words.js";

const WIDTH = 250, HEIGHT = 92, ACROSS = 60, DOWN = 22, EDGE = 10;

let chosen = null;

// Each vertex stands right of all that send to it.
function layers(vertices, edges) {
  const depth = new Map(vertices.map((vertex) => [vertex.name, 0]));
  for (let round = 0; round < vertices.length; round++) {
    for (const { upstream, downstream } of edges) {
      depth.set(downstream, Math.max(depth.get(downstream), depth.get(upstream) + 1));
    }
  }
  const found = [];
  for (const vertex of vertices) (found[depth.get(vertex.name)] ??= []).push(vertex);
  return found;
}

function places(vertices, edges) {
  const found = new Map();
  layers(vertices, edges).forEach((layer, column) => layer.forEach((vertex, row) => {
    found.set(vertex.name, [EDGE + column * (WIDTH + ACROSS), EDGE + row * (HEIGHT + DOWN)]);
  }));
  return found;
}

export function shares(figures) {
  const busy = share(figures.busyMsPerSecond), pressed = share(figures.backPressuredMsPerSecond);
  return { busy, pressed, gate: share(figures.sourceGateClosedMsPerSecond) };
}

const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

function bar(x, y, width, parts) {
  let left = x;
  const drawn = [svg("rect", { x, y, width, height: 10, class: "idle" })];
  for (const [name, part] of Object.entries(parts)) {
    const wide = Math.min(part * width, x + width - left);
    if (wide > 0) drawn.push(svg("rect", { x: left, y, width: wide, height: 10, class: name }));
    left += wide;
  }
  return drawn;
}

function box(vertex, figures, [x, y], choose) {
  const parts = shares(figures);
  const said = Object.entries({ busy: parts.busy, backpressured: parts.pressed, "gate closed": parts.gate })
    .map(([name, part]) => `${name} ${(part * 100).toFixed(0)} %`).join(", ");
  const rates = vertex.is_source ? `out ${rate(figures.recordsOutPerSecond)}`
    : `in ${rate(figures.recordsInPerSecond)}, out ${rate(figures.recordsOutPerSecond)}`;
  const lag = figures.recordsLag === null || figures.recordsLag === undefined ? "" : `, lag ${count(figures.recordsLag)}`;
  const failed = figures.recordsFailed ? `, ${count(figures.recordsFailed)} failed` : "";
  const brief = Object.entries({ busy: parts.busy, backpressured: parts.pressed, gate: parts.gate })
    .filter(([, part]) => part >= 0.005).map(([name, part]) => `${name} ${(part * 100).toFixed(0)} %`).join(" ") || "idle";
  return svg("g", {
    class: "vertex", id: `vertex-${vertex.name}`, tabindex: 0, role: "button", "aria-pressed": String(vertex.name === chosen),
    "aria-label": `${vertex.name}, ${counted(vertex.parallelism, "subtask")}, ${rates}${lag}${failed}; ${said}`,
    onclick: choose, onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(); } },
  },
    svg("title", {}, `${vertex.name}: ${vertex.steps.map((step) => step.id).join(" → ")}`),
    svg("rect", { x, y, width: WIDTH, height: HEIGHT, rx: 6, class: "box" }),
    svg("text", { x: x + 12, y: y + 22, "font-weight": 600 }, cut(vertex.name, 24)),
    svg("text", { x: x + WIDTH - 12, y: y + 22, "text-anchor": "end", class: "faint" }, `×${vertex.parallelism}`),
    svg("text", { x: x + 12, y: y + 43, class: failed ? "bad" : null }, cut(`${rates}${lag}${failed}`, 34)),
    svg("text", { x: x + 12, y: y + 61, class: "faint" }, cut(brief, 36)),
    ...bar(x + 12, y + 72, WIDTH - 24, parts));
}

function edge(one, at) {
  const [x1, y1] = at.get(one.upstream), [x2, y2] = at.get(one.downstream);
  const from = [x1 + WIDTH, y1 + HEIGHT / 2], to = [x2 - 6, y2 + HEIGHT / 2], half = (from[0] + to[0]) / 2;
  const title = `${one.upstream_step} → ${one.downstream_step}: ${one.distribution}${one.side_output ? `, side output ${one.side_output}` : ""}`;
  return svg("path", {
    d: `M${from} C${half},${from[1]} ${half},${to[1]} ${to}`, class: "edge", "marker-end": "url(#arrow)",
  }, svg("title", {}, title));
}

export function drawGraph(job, again) {
  const { vertices, edges } = job.graph;
  const at = places(vertices, edges);
  const width = Math.max(...[...at.values()].map(([x]) => x)) + WIDTH + EDGE;
  const height = Math.max(...[...at.values()].map(([, y]) => y)) + HEIGHT + EDGE;
  const choose = (name) => () => { chosen = chosen === name ? null : name; again(); };
  const arrow = svg("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 8, markerHeight: 8, orient: "auto" },
    svg("path", { d: "M0,0 L8,4 L0,8 z", fill: "var(--faint)" }));
  show("graph", svg("svg", { width, height, role: "group", "aria-label": "The job's graph" }, svg("defs", {}, arrow),
    edges.map((one) => edge(one, at)),
    vertices.map((vertex) => box(vertex, busiest(job, vertex), at.get(vertex.name), choose(vertex.name)))));
  drawSubtasks(job);
}

// A vertex's figures, with the gate of the subtask whose gate is closed most.
function busiest(job, vertex) {
  const gates = vertex.subtasks.map((name) => job.subtasks[name]?.sourceGateClosedMsPerSecond ?? 0);
  return { ...(job.vertices[vertex.name] ?? {}), sourceGateClosedMsPerSecond: Math.max(0, ...gates) };
}

function drawSubtasks(job) {
  const vertex = job.graph.vertices.find((one) => one.name === chosen);
  if (!vertex) return show("subtasks");
  const rows = vertex.subtasks.map((name) => ({ name, ...(job.subtasks[name] ?? {}) }));
  const columns = [
    ["subtask", (row) => row.name],
    ["time", (row) => timeBar(row)],
    ["in", (row) => rate(row.recordsInPerSecond), "number"],
    ["out", (row) => rate(row.recordsOutPerSecond), "number"],
    ["queued", (row) => bytes(row.inFlightBytes), "number"],
    ["held", (row) => span((row.heldMs ?? 0) / 1000), "number"],
  ];
  if (rows.some((row) => row.recordsLag !== undefined)) columns.push(["lag", (row) => count(row.recordsLag), "number"]);
  if (rows.some((row) => row.watermark !== undefined)) {
    columns.push(["behind the clock", (row) => (row.eventTimeIdle ? "idle" : span(lag(row))), "number"]);
  }
  if (rows.some((row) => row.hotKeys?.length)) columns.push(["hottest keys", (row) => hottest(row.hotKeys)]);
  if (rows.some((row) => row.recordsFailed)) columns.push(["failed", (row) => count(row.recordsFailed), "number"]);
  const failures = job.vertices[vertex.name]?.lastFailures ?? [];
  show("subtasks", table(`Subtasks of ${vertex.name}`, columns, rows, "subtasks"),
    failures.map((failure) => html("pre", {}, failure)));
}

const hottest = (keys) => (keys ?? []).map(([key, part]) => `${key ?? "a key"} ${(part * 100).toFixed(0)} %`).join(", ");

const lag = (row) => (row.watermarkLagMs === null || row.watermarkLagMs === undefined ? null : row.watermarkLagMs / 1000);

function timeBar(row) {
  const parts = shares(row);
  const said = `busy ${(parts.busy * 100).toFixed(0)} %, backpressured ${(parts.pressed * 100).toFixed(0)} %, `
    + `gate closed ${(parts.gate * 100).toFixed(0)} %`;
  return html("div", { class: "bar", role: "img", "aria-label": said, title: said },
    Object.entries(parts).map(([name, part]) => {
      const piece = html("div", { class: name });
      piece.style.width = `${part * 100}%`;
      return piece;
    }));
}
