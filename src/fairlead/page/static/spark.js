// Traffic: the figures of now as text, and the last hour as a line with its errors.

import { make } from "./dom.js";
import { ask } from "./stream.js";

const MOST_PARTS = 10;
const FETCH_MS = 30_000;
const SVG = "http://www.w3.org/2000/svg";

/** Return the name of a row in the figures: a load balancer has its id, a route that of its load balancer and its own. */
export function trafficId(item) {
  if (!item.loadBalancers) return item.id;
  const [kind, , namespace, name] = item.id.split("/");
  return `${item.loadBalancers[0] ?? ""}@${kind.toLowerCase()}/${namespace}/${name}`;
}

export class Sparks {
  /** `figures` is the table of what is busy now; `drawn` is called when the last hour of something has come. */
  constructor(figures, drawn) {
    this.figures = figures;
    this.drawn = drawn;
    this.trends = new Map();
    this.whole = null;
    this.wanted = new Set();
    this.wholeWanted = false;
    this.fetched = 0;
    this.waiting = null;
  }

  /** Have the last hour of these, which are in view; `whole`: and of all together. */
  want(ids, whole = false) {
    this.wholeWanted = whole;
    const lacking = ids.some((id) => !this.wanted.has(id));
    this.wanted = new Set(ids);
    if (lacking || Date.now() - this.fetched > FETCH_MS) this.later();
  }

  later() {
    this.waiting ??= setTimeout(() => { this.waiting = null; this.fetch(); }, 150);
  }

  async fetch() {
    this.fetched = Date.now();
    const query = new URLSearchParams([...this.wanted].slice(0, 100).map((id) => ["id", id]));
    if (this.wholeWanted) query.set("whole", "");
    else if (!this.wanted.size) return;
    try {
      const answer = await ask(`/page/trends?${query}`);
      if (!answer.ok) return;
      const { trends, whole } = await answer.json();
      this.trends = new Map(Object.entries(trends));
      if (this.wholeWanted) this.whole = whole;
      this.drawn();
    } catch {
      // The hub does not answer, which the banner says.
    }
  }

  /** Return what a row shows: the rate of now, and the last hour. */
  cell(item) {
    const id = trafficId(item);
    const [now, trend] = [this.figures.get(id), this.trends.get(id)];
    if (!now && !trend) return ["–"];
    const errors = now?.requests?.[4];
    return [
      trend ? hourLine(trend) : null,
      make("span", { class: "rate" }, rateOf(now), errors ? make("span", { class: "bad" }, ` ${round(errors)} err`) : null),
    ].filter(Boolean);
  }

  /** Return the same in words. */
  words(item) {
    const id = trafficId(item);
    const [now, trend] = [this.figures.get(id), this.trends.get(id)];
    return now || trend ? `${rateOf(now)} now${trend ? `; ${hourWords(trend)}` : ""}` : "none in the last hour";
  }

  /** Return the element with figures and the last hour of one row. */
  element(item) {
    const id = trafficId(item);
    const [now, trend] = [this.figures.get(id), this.trends.get(id)];
    const box = make("div", { id: "figures" });
    if (!now && !trend) {
      box.append(make("p", { class: "quiet" }, item.loadBalancers ? "No figures of this route: its load balancer counts none, or it is idle." : "No traffic in the last hour."));
      return box;
    }
    const requests = now?.requests?.length ? `, ${round(total(now))} requests/s, ${round(now.requests[4])} of them 5xx` : "";
    const times = now?.p99Ms ? `, p50 ${round(now.p50Ms)} ms, p99 ${round(now.p99Ms)} ms` : "";
    box.append(make("p", {}, now ? `${round(now.connections ?? 0)} connections/s, ${size((now.bytesIn ?? 0) + (now.bytesOut ?? 0))}/s${requests}${times}` : "No traffic now."));
    if (trend) box.append(chart(trend));
    for (const [mark, title] of [["#", "Backends"], ["@", "Routes"]]) {
      const parts = [...this.figures.values()].filter((each) => each.id.startsWith(`${id}${mark}`));
      parts.sort((a, b) => total(b) - total(a));
      if (parts.length) {
        box.append(make("p", { class: "quiet" }, `${title}, the busiest first`), make("ul", { class: "quiet" }, parts.slice(0, MOST_PARTS).map((each) => make("li", {},
          `${each.id.slice(id.length + 1)}: ${round(total(each))} requests/s${each.requests?.[4] ? `, ${round(each.requests[4])} of them 5xx` : ""}${each.p99Ms ? `, p99 ${round(each.p99Ms)} ms` : ""}`))));
      }
    }
    return box;
  }
}

/** Return the last hour as a chart with its axis. */
export function chart(trend) {
  return make("figure", { class: "hour" },
    hourLine(trend, 120),
    make("figcaption", { class: "quiet" }, make("span", {}, "1 h ago"), make("span", {}, hourWords(trend)), make("span", {}, "now")));
}

/** Return the last hour as a picture: the load as a line, the errors below it as an area. */
export function hourLine(trend, width = 60) {
  const height = 20;
  const most = Math.max(0.02, ...trend.load.map((value) => value ?? 0));
  const svg = element("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": hourWords(trend) });
  const x = (at) => (at * width) / (trend.load.length - 1);
  const y = (value) => height - 1 - ((height - 3) * value) / most;
  for (const [name, values] of [["load", trend.load], ["errors", trend.errors]]) {
    for (const run of runs(values)) {
      if (name === "errors" && !run.some(([, value]) => value)) continue;
      const top = run.map(([at, value], number) => `${number ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(2)}`).join("");
      svg.append(element("path", { class: `${name} area`, d: `${top}L${x(run.at(-1)[0]).toFixed(1)} ${height}L${x(run[0][0]).toFixed(1)} ${height}Z` }));
      svg.append(element("path", { class: name, d: top }));
    }
  }
  return svg;
}

/** Return the parts of a series without a gap, as pairs of place and value. */
function runs(values) {
  const found = [[]];
  values.forEach((value, at) => {
    if (value === null) found.push([]);
    else found.at(-1).push([at, value]);
  });
  return found.filter((run) => run.length > 1);
}

function hourWords(trend) {
  const known = trend.load.filter((value) => value !== null);
  const errors = trend.errors.reduce((sum, value) => sum + (value ?? 0), 0) * 60;
  const unit = trend.http ? "requests/s" : "connections/s";
  if (!known.length) return "nothing counted yet";
  return `up to ${round(Math.max(...known))} ${unit}, ${Math.round(errors)} ${trend.http ? "errors (5xx)" : "failed"} in the last hour`;
}

function element(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

const total = (figure) => (figure.requests ?? []).reduce((a, b) => a + b, 0);
const rateOf = (figure) => (figure ? figure.requests?.length ? `${round(total(figure))} req/s` : `${round(figure.connections ?? 0)} conn/s` : "idle");

const round = (value) => (value >= 10 || !value ? Math.round(value) : Math.round(value * 10) / 10);

function size(value) {
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (value < 1024) return `${round(value)} ${unit}`;
    value /= 1024;
  }
  return `${round(value)} TiB`;
}
