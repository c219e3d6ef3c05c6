// A list of any length: only the rows in view are elements. One stop of the Tab key; arrows, Home, End, Page move.

import { ago, make, words } from "./dom.js";
import { trafficId } from "./spark.js";

const ROW = 54;
const SPARE = 6;

export class Grid {
  /** `box` scrolls; `open` is called with an item on Enter or a click; `sparks` has the traffic of items. */
  constructor(box, open, sparks) {
    this.box = box;
    this.open = open;
    this.sparks = sparks;
    this.items = [];
    this.active = 0;
    this.activeId = "";
    this.wanted = "";
    this.rows = new Map();
    this.fresh = new Set();
    this.heads = [...document.querySelectorAll("#head > *")].map((head) => head.textContent);
    this.space = make("div", { "aria-hidden": "true" });
    box.append(this.space);
    box.addEventListener("scroll", () => this.draw());
    box.addEventListener("keydown", (event) => this.#key(event));
    box.addEventListener("focus", () => this.#show(this.active));
    new ResizeObserver(() => this.draw()).observe(box);
  }

  /** Show these items; the active one stays active wherever it is now. */
  set(items) {
    this.items = items;
    const at = items.findIndex((item) => item.id === this.activeId);
    this.active = at >= 0 ? at : Math.max(0, Math.min(this.active, items.length - 1));
    this.activeId = items[this.active]?.id ?? "";
    this.box.setAttribute("aria-rowcount", items.length);
    this.space.style.height = `${items.length * ROW}px`;
    this.draw();
    if (this.wanted) this.activate(this.wanted);
  }

  /** Make an item the active one and have it in view, as soon as it is there. */
  activate(id) {
    const at = this.items.findIndex((item) => item.id === id);
    this.wanted = at < 0 ? id : "";
    if (at >= 0 && id !== this.activeId) this.choose(at);
  }

  /** Mark rows that have just changed. */
  changed(ids) {
    for (const id of ids) this.fresh.add(id);
  }

  draw() {
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW) - SPARE);
    const last = Math.min(this.items.length, Math.ceil((this.box.scrollTop + this.box.clientHeight) / ROW) + SPARE);
    const kept = new Map();
    for (let at = first; at < last; at += 1) {
      const item = this.items[at];
      const known = this.rows.get(item.id);
      const row = known?.item === item ? known : { item, element: this.#row(item) };
      if (row !== known) {
        known?.element.remove();
        this.box.append(row.element);
      }
      row.element.style.top = `${at * ROW}px`;
      row.element.setAttribute("aria-rowindex", at + 1);
      row.element.setAttribute("aria-selected", item.id === this.activeId);
      if (this.fresh.has(item.id)) row.element.classList.add("changed");
      kept.set(item.id, row);
    }
    for (const [id, row] of this.rows) if (!kept.has(id)) row.element.remove();
    this.rows = kept;
    this.fresh.clear();
    this.sparks.want([...kept.values()].map(({ item }) => trafficId(item)));
    const active = kept.get(this.activeId);
    if (active) this.box.setAttribute("aria-activedescendant", active.element.id);
    else this.box.removeAttribute("aria-activedescendant");
  }

  /** Draw the traffic of the rows in view again. */
  drawTraffic() {
    for (const { item, element } of this.rows.values()) {
      const cell = element.querySelector(".traffic");
      cell.replaceChildren(...this.sparks.cell(item));
      cell.title = this.sparks.words(item);
      cell.setAttribute("aria-label", `${this.heads[4]}: ${cell.title}`);
    }
  }

  choose(at, { open = false } = {}) {
    if (!this.items.length) return;
    this.wanted = "";
    this.active = Math.max(0, Math.min(at, this.items.length - 1));
    this.activeId = this.items[this.active].id;
    this.#show(this.active);
    this.draw();
    if (open) this.open(this.items[this.active]);
  }

  #row(item) {
    const why = whyOf(item);
    const about = [item.hosts, item.region, item.className].filter(Boolean).join(" · ");
    const since = item.since ? ago(item.since) : "";
    const cells = [
      ["name", [make("span", { class: "title" }, titleOf(item)), make("span", { class: "quiet sub" }, about)], [item.shown ?? item.title, about].filter(Boolean).join(", ")],
      ["condition", [make("span", { class: `state ${item.state ?? "Serving"}` }, words(item.state ?? "Serving")), make("span", { class: "quiet sub why-line" }, why)], [stateOf(item), why].filter(Boolean).join(": ")],
      ["address", [make("span", { class: "line" }, item.address || "pending"), make("span", { class: "quiet sub" }, item.on ?? "")], [item.address || "pending", item.on].filter(Boolean).join(" on ")],
      ["backends", (item.targets || "-").replace(/ healthy$/, ""), item.targets],
      ["traffic", this.sparks.cell(item), this.sparks.words(item)],
      ["quiet since", since, (item.since ?? "").slice(0, 19).replace("T", " ")],
    ];
    // The heads stand outside of what scrolls, so that each cell says its own to a screen reader.
    const element = make("div", { class: "row", role: "row", id: `row-${item.id}` }, cells.map(([style, text, said], at) =>
      make("span", { class: style, role: "gridcell", title: said || (typeof text === "string" ? text : null), "aria-label": `${this.heads[at]}: ${said || (typeof text === "string" ? text : "") || "-"}` }, text)));
    element.addEventListener("click", () => {
      this.choose(this.items.findIndex((each) => each.id === item.id), { open: true });
    });
    return element;
  }

  #show(at) {
    const top = at * ROW;
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    else if (top + ROW > this.box.scrollTop + this.box.clientHeight) this.box.scrollTop = top + ROW - this.box.clientHeight;
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(this.box.clientHeight / ROW) - 1);
    const to = {
      ArrowDown: this.active + 1, ArrowUp: this.active - 1, PageDown: this.active + page, PageUp: this.active - page,
      Home: 0, End: this.items.length - 1,
    }[event.key];
    if (to !== undefined) this.choose(to);
    else if (event.key === "Enter" || event.key === " ") this.choose(this.active, { open: true });
    else return;
    event.preventDefault();
  }
}

/** Return the title in two parts: the kind before it, which is never cut off, and the rest. */
function titleOf(item) {
  const whole = item.shown ?? item.title;
  const kind = whole.endsWith(item.title) ? whole.slice(0, -item.title.length) : "";
  return [make("span", {}, kind), make("span", {}, whole.slice(kind.length))];
}

/** Return the words of an item's state, with the reason where it says more. */
export function stateOf(item) {
  const state = item.state ?? "Serving";
  return state === "Serving" ? words(state) : `${words(state)}: ${item.reason}`;
}

/** Return what is wrong with an item, without its name, which is next to it. */
export function whyOf(item) {
  const [first = "", ...more] = item.problems ?? [];
  const text = first.startsWith("load balancer ") && !item.loadBalancers ? first.slice(first.indexOf(": ") + 2) : first;
  return more.length ? `${text} (and ${more.length} more)` : text;
}
