// Asks the job once a second, and draws what it says.

import { drawCheckpoint, drawTimeline, joins, remember, shownId } from "./checkpoints.js";
import { html, show } from "./elements.js";
import { drawGraph } from "./graph.js";
import { drawGates, drawParallelism, drawRestarts, drawTime, drawWaits } from "./panels.js";
import { count, counted, span } from "./words.js";

const EVERY = 1000, PATIENCE = 10000;
const ALL = 1000, NEWEST = 20;
const GOOD = ["running", "finished"], BAD = ["failed", "cancelled", "restarting"];

let name = null;
let job = null;
let diagnosis = [];
let checkpoint = null;
let heard = Date.now();

async function get(path) {
  const answer = await fetch(`/api/v1/${path}`, { signal: AbortSignal.timeout(PATIENCE), headers: { Accept: "application/json" } });
  if (answer.status === 401) throw new Error("the session is over: `weir open` gives a new link");
  if (answer.status === 404) return null;
  if (!answer.ok) throw new Error(`the job's server answers ${answer.status}`);
  return answer.json();
}

async function ask() {
  name ??= (await get("jobs")).jobs[0].name;
  const place = `jobs/${encodeURIComponent(name)}`;
  const [status, rows, said] = await Promise.all([
    get(place), get(`${place}/checkpoints?limit=${NEWEST}`), get(`${place}/diagnosis`),
  ]);
  [job, diagnosis] = [status, said.sentences];
  // A page that nobody looks at asks for nothing, and many may have come since.
  const gap = rows.checkpoints.length === NEWEST && !joins(rows.checkpoints);
  remember(gap ? (await get(`${place}/checkpoints?limit=${ALL}`)).checkpoints : rows.checkpoints);
  const id = shownId();
  checkpoint = id === null ? null : await get(`${place}/checkpoints/${id}`);
}

function draw() {
  document.title = `${job.name}: ${job.status} – Weir`;
  document.getElementById("name").textContent = job.name;
  const state = document.getElementById("state");
  state.textContent = job.status;
  state.className = `badge ${GOOD.includes(job.status) ? "good" : BAD.includes(job.status) ? "bad" : ""}`;
  document.getElementById("facts").textContent = `up ${span(job.uptime)}, ${counted(job.restarts, "restart")}, `
    + `${counted(job.checkpoints_completed, "checkpoint")} completed, ${count(job.checkpoints_failed)} failed, `
    + `encrypted: ${job.encrypted ? "yes" : "no"}`;
  show("diagnosis", diagnosis.map((one) => html("li", { class: one.severity === "trouble" ? "bad" : null }, one.text)));
  drawGraph(job, draw);
  drawTimeline(choose);
  drawCheckpoint(checkpoint);
  drawGates(job);
  drawTime(job);
  drawWaits(job, Date.now() / 1000);
  drawParallelism(job);
  drawRestarts(job);
}

// Another checkpoint was chosen: its parts are asked for at once.
async function choose() {
  drawTimeline(choose);
  try {
    checkpoint = await get(`jobs/${encodeURIComponent(name)}/checkpoints/${shownId()}`);
    drawCheckpoint(checkpoint);
  } catch (error) {
    tell(error);
  }
}

function tell(error) {
  if (error !== null) console.error(error);
  const place = document.getElementById("stale");
  const text = error === null ? "" : `No news for ${span((Date.now() - heard) / 1000)}: ${error.message}`;
  if (place.textContent !== text) place.textContent = text;
}

async function look() {
  try {
    if (!document.hidden) {
      await ask();
      heard = Date.now();
      draw();
      tell(null);
    }
  } catch (error) {
    tell(error);
  }
  setTimeout(look, EVERY);
}

document.addEventListener("visibilitychange", () => { heard = Date.now(); });
look();
