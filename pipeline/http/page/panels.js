// What stands beside the graph and the timeline: gates, event time, waits, the start, restarts.

import { html, show, table } from "./elements.js";
import { count, counted, moment, span } from "./words.js";

const END = 2 ** 63 - 1;

const none = (text) => html("p", { class: "hint" }, text);

export function drawGates(job) {
  show("gates", job.gates.length === 0 ? none("No source tells of a gate.") : html("ul", {}, job.gates.map(
    (gate) => html("li", {}, html("strong", {}, `${gate.vertex}: `), gate.sentence))));
}

export function drawTime(job) {
  if (job.event_time.length === 0) return show("time", none("No step has had a watermark yet."));
  const columns = [
    ["vertex", (row) => row.vertex],
    ["watermark", (row) => (row.watermark === null ? "–" : row.watermark >= END ? "the end" : moment(row.watermark))],
    ["behind the clock", (row) => (row.watermarkLagMs === null ? "–" : span(row.watermarkLagMs / 1000)), "number"],
    ["late", (row) => count(row.recordsLate), "number"],
    ["too far ahead", (row) => count(row.recordsAhead), "number"],
  ];
  show("time", table(null, columns, job.event_time, "time"));
}

export function drawWaits(job, now) {
  show("waits", job.waits.length === 0 ? none("Nothing waits.") : html("ul", {}, job.waits.map((wait) => html(
    "li", {}, html("strong", {}, wait.who), ` waits for ${wait.what}, since ${moment(wait.since * 1000)} (${span(Math.max(0, now - wait.since))})`))));
}

export function drawParallelism(job) {
  const auto = job.autoscale, last = job.rescales.at(-1);
  const said = [
    job.rescaling ? `It is being rescaled: ${job.rescaling}.` : null,
    auto ? `Autoscale (${count(auto.least)} to ${counted(auto.most, "subtask")} a step) ${auto.state}.` : null,
    ...job.advice.map((text) => `Advice: ${text}.`),
    ...(auto?.refused ?? []).map((one) => `${one.what} is advised and not done: ${one.why}.`),
    last ? `Rescaled ${last.what}, at ${moment(last.at * 1000)}, in ${span(last.seconds)}.` : null,
  ].filter((text) => text !== null);
  const columns = [["when", (row) => moment(row.at * 1000)], ["what", (row) => row.what], ["outcome", (row) => row.outcome],
    ["why", (row) => row.why]];
  show("parallelism",
    said.length === 0 ? none("Nothing is advised.") : html("ul", {}, said.map((text) => html("li", {}, text))),
    auto ? html("p", { class: "hint" }, `After each start and rescale it pauses for ${span(auto.pause)}; advice must last for ${span(auto.window)}.`)
      : none("Autoscale is off: `weir rescale` changes it, or the option `autoscale`."),
    auto?.newest.length ? table("What autoscale has decided and refused, the newest first", columns, [...auto.newest].reverse(), "autoscale")
      : null);
}

const phases = (all) => Object.entries(all).filter(([, seconds]) => seconds !== null)
  .map(([name, seconds]) => `${name} ${span(seconds)}`).join(", ");

export function drawRestarts(job) {
  const all = job.recoveries, causes = job.restart_causes;
  // Causes are known of the newest only.
  const restarts = all.map((one, index) => ({ said: phases(one), ...causes[index - all.length + causes.length] })).reverse();
  show("restarts",
    html("p", {}, `The current start: ${phases(job.start) || "it begins"}.`),
    job.restarts === 0 ? none("It has not been restarted.") : table(`Restarted ${counted(job.restarts, "time")}`,
      [["when", (row) => (row.at === undefined ? "–" : moment(row.at * 1000))], ["cause", (row) => row.cause ?? "–"],
        ["where its time went", (row) => row.said]], restarts, "restarts"),
    job.failure ? [html("p", {}, "The newest cause:"), html("pre", { tabindex: 0, id: "failure" }, job.failure)] : null);
}
