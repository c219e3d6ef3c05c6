// Traffic figures of the last minutes as lines; a load balancer without traffic has none.

import { make } from "./dom.js";

const KEPT = 60;
const MOST_PARTS = 10;
const SVG = "http://www.w3.org/2000/svg";

export class Sparks {
  /** `figures` is the table of what is busy now. */
  constructor(figures) {
    this.figures = figures;
    this.kept = new Map();
  }

  /** Remember the figures of now. */
  tick() {
    for (const id of this.figures.keys()) if (!this.kept.has(id)) this.kept.set(id, []);
    for (const [id, points] of this.kept) {
      const now = this.figures.get(id);
      points.push([(now?.bytesIn ?? 0) + (now?.bytesOut ?? 0), now?.connections ?? 0]);
      if (points.length > KEPT) points.shift();
      if (!points.some(([bytes, connections]) => bytes || connections)) this.kept.delete(id);
    }
  }

  /** Return the element with figures and lines of one load balancer. */
  element(id) {
    const now = this.figures.get(id);
    const points = this.kept.get(id) ?? [];
    const box = make("div", { id: "figures" });
    if (!now && !points.length) {
      box.append(make("p", { class: "quiet" }, "No traffic now."));
      return box;
    }
    const requests = now?.requests?.length ? `, ${round(now.requests.reduce((a, b) => a + b))} requests/s, ${round(now.requests[4])} of them 5xx` : "";
    const times = now?.p99Ms ? `, p50 ${round(now.p50Ms)} ms, p99 ${round(now.p99Ms)} ms` : "";
    const text = `${round(now?.connections ?? 0)} connections/s, ${size((now?.bytesIn ?? 0) + (now?.bytesOut ?? 0))}/s${requests}${times}`;
    box.append(make("p", {}, text));
    for (const [mark, title] of [["#", "Backends"], ["@", "Routes"]]) {
      const parts = [...this.figures.values()].filter((each) => each.id.startsWith(`${id}${mark}`));
      parts.sort((a, b) => total(b) - total(a));
      if (parts.length) {
        box.append(make("p", { class: "quiet" }, `${title}, the busiest first`), make("ul", { class: "quiet" }, parts.slice(0, MOST_PARTS).map((each) => make("li", {},
          `${each.id.slice(id.length + 1)}: ${round(total(each))} requests/s${each.requests?.[4] ? `, ${round(each.requests[4])} of them 5xx` : ""}${each.p99Ms ? `, p99 ${round(each.p99Ms)} ms` : ""}`))));
      }
    }
    if (points.length > 1) box.append(line(points.map(([bytes]) => bytes), `Bytes each second over the last ${points.length * 5} seconds: ${text}`));
    return box;
  }
}

function line(values, label) {
  const svg = document.createElementNS(SVG, "svg");
  for (const [name, value] of Object.entries({ class: "spark", viewBox: `0 0 ${KEPT - 1} 100`, preserveAspectRatio: "none", role: "img", "aria-label": label })) svg.setAttribute(name, value);
  const most = Math.max(1, ...values);
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", values.map((value, at) => `${at ? "L" : "M"}${KEPT - values.length + at} ${97 - (94 * value) / most}`).join(""));
  svg.append(path);
  return svg;
}

const total = (figure) => (figure.requests ?? []).reduce((a, b) => a + b, 0);

const round = (value) => (value >= 10 || !value ? Math.round(value) : Math.round(value * 10) / 10);

function size(value) {
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (value < 1024) return `${round(value)} ${unit}`;
    value /= 1024;
  }
  return `${round(value)} TiB`;
}
