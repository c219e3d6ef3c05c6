// The page: takes the hub's changes into tables, and draws what is looked at.

import { age, announce, make, words } from "./dom.js";
import { drawDetail, drawGone, fetchDetail } from "./detail.js";
import { Grid } from "./grid.js";
import { Sparks } from "./spark.js";
import { follow, session } from "./stream.js";
import * as views from "./views.js";

const $ = (id) => document.getElementById(id);
const tables = { lb: new Map(), member: new Map(), certificate: new Map(), name: new Map(), proxy: new Map(), hub: new Map(), traffic: new Map(), plan: new Map(), region: new Map(), zone: new Map(), pool: new Map() };
const VIEWS = ["load-balancers", "plan", "regions", "members", "proxies", "names"];
// What each view is drawn from: it is drawn anew only when something in these has changed.
const DRAWN_FROM = { plan: ["plan"], regions: ["region"], members: ["member", "lb"], proxies: ["proxy", "pool"], names: ["name", "zone", "certificate"] };
const STATES = ["NotServing", "NotKnownYet", "NeedsAttention", "Serving", "Idle"];
const RANK = { NotKnown: 0, NotServing: 0, NotKnownYet: 1, NeedsAttention: 1, Serving: 2, Idle: 2 };
const COUNTED = { NotServing: "not serving", NotKnownYet: "not known yet", NeedsAttention: "with a problem", Serving: "serving", Idle: "idle" };

let only = "";
let order = [];
let view = "load-balancers";
let opened = null;
let drawing = false;
let stale = true;
// When the hub was heard last, null before it was heard at all; while the connection is open, what is shown is of now.
let heard = null;

const sparks = new Sparks(tables.traffic);
const grid = new Grid($("grid"), (item) => {
  const hash = `#/load-balancers/${item.id}`;
  if (location.hash === hash) openDetail(item.id);
  else location.hash = hash;
});

follow({
  open() {
    $("connection").hidden = true;
    $("sign-in").hidden = true;
    $("content").hidden = false;
  },
  all(data) {
    for (const table of Object.values(tables)) table.clear();
    stale = true;
    heard = new Date();
    take(data);
    // What the address names is opened once it is there, and is another object after a reconnect.
    const id = named();
    if (id) openDetail(id, false);
    if (id && !grid.activeId) grid.activate(id);
  },
  change(data) {
    const before = new Map((data.set.lb ?? []).map((item) => [item.id, tables.lb.get(item.id)]));
    grid.changed(before.keys());
    take(data);
    say([...before].filter(([id, old]) => (old?.state ?? "Serving") !== (tables.lb.get(id).state ?? "Serving")).map(([id]) => tables.lb.get(id)),
      (data.set.member ?? []).filter((item) => item.state === "NeedsAttention"));
    const id = named();
    if (before.has(id) || data.gone.lb?.includes(id)) openDetail(id, false);
  },
  lost(sentence) {
    if (heard && $("connection").hidden) heard = new Date();
    $("connection").textContent = `${sentence} Trying again; ${heard ? `what you see is of ${heard.toLocaleTimeString()} and may be old.` : "nothing has been read yet."}`;
    $("connection").hidden = false;
  },
  refused(sentence) {
    session.token = "";
    $("connection").hidden = true;
    $("content").hidden = true;
    $("sign-in").hidden = false;
    $("sign-in-why").textContent = sentence;
    $("token").value = "";
    $("token").focus();
    return new Promise((resume) => {
      $("sign-in").onsubmit = (event) => {
        event.preventDefault();
        session.token = $("token").value.trim();
        resume();
      };
    });
  },
});

function take(data) {
  for (const [name, items] of Object.entries(data.set)) for (const item of items) tables[name]?.set(item.id, item);
  for (const [name, ids] of Object.entries(data.gone)) for (const id of ids) tables[name]?.delete(id);
  if (data.set.lb || data.gone.lb) order = [];
  stale ||= DRAWN_FROM[view]?.some((name) => data.set[name] || data.gone[name]) ?? false;
  later();
}

function say(changed, members) {
  const bad = changed.filter((item) => item.state === "NotServing");
  if (changed.length === 1) announce(`${changed[0].title} ${words(changed[0].state ?? "Serving")}`);
  else if (changed.length) announce(`${changed.length} load balancers changed, ${bad.length} not serving`);
  else if (members.length) announce(members[0].problems?.[0] ?? "");
}

function later() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => { drawing = false; draw(); });
}

function draw() {
  const [hub] = tables.hub.values();
  if (hub) {
    const word = hub.leading ? "leads" : "stands by";
    $("hub").textContent = `Hub ${hub.id} ${word} · ${hub.version}${hub.problems?.length ? ` · not ready: ${hub.problems[0]}` : ""}`;
  }
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#/${view}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  for (const name of VIEWS) $(`view-${name}`).hidden = name !== view;
  let held = 0;
  for (const item of tables.plan.values()) held += item.held ?? 0;
  $("held").hidden = !held;
  $("held").textContent = held;
  $("held").title = `${held} held`;
  if (view === "load-balancers") drawLoadBalancers();
  else if (stale) drawView();
}

/** Draw a view anew; what had the focus has it again. */
function drawView() {
  stale = false;
  const box = $(`view-${view}`);
  const label = box.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
  box.replaceChildren(...views[view](tables));
  if (label) [...box.querySelectorAll("[aria-label]")].find((each) => each.getAttribute("aria-label") === label)?.focus();
}

function drawLoadBalancers() {
  if (!order.length) {
    order = [...tables.lb.values()].sort((a, b) =>
      RANK[a.state ?? "Serving"] - RANK[b.state ?? "Serving"] || (a.title < b.title ? -1 : 1));
  }
  const counts = {};
  for (const item of order) counts[item.state ?? "Serving"] = (counts[item.state ?? "Serving"] ?? 0) + 1;
  const focused = document.activeElement?.dataset?.only;
  $("counts").replaceChildren(...STATES.filter((state) => counts[state] || only === state).map((state) => make("button", {
    type: "button", "aria-pressed": String(only === state), "data-only": state,
    onclick: () => { only = only === state ? "" : state; later(); },
  }, make("span", { class: `state ${state}` }, `${counts[state] ?? 0} ${COUNTED[state]}`))));
  if (focused) document.querySelector(`[data-only="${focused}"]`)?.focus();
  const wanted = $("search").value.trim().toLowerCase();
  const shown = order.filter((item) => (!only || (item.state ?? "Serving") === only)
    && (!wanted || `${item.title} ${item.address} ${item.member} ${item.region} ${item.className} ${item.reason} ${item.name}`.toLowerCase().includes(wanted)));
  grid.set(shown);
  $("grid").dataset.empty = shown.length ? "" : order.length ? "No load balancer is like that."
    : `No load balancers yet. ${tables.member.size ? "A Service of type LoadBalancer in a member makes one." : "Add a member first: fairlead tenant add NAME"}`;
}

async function openDetail(id, focus = true) {
  const item = tables.lb.get(id);
  opened = item ?? null;
  $("detail").hidden = !item && !heard;
  if (!item) {
    if (heard) drawGone($("detail"), id, close);
    return;
  }
  const draw = (detail) => {
    const kept = $("detail").scrollTop;
    const inside = $("detail").contains(document.activeElement);
    drawDetail($("detail"), item, detail, close, sparks.element(item.id));
    $("detail").scrollTop = kept;
    if (inside) $("detail-title").focus();
  };
  if (focus) draw(null);
  if (focus) $("detail-title").focus();
  const detail = await fetchDetail(item).catch(() => null);
  if (opened === item) draw(detail);
}

function close() {
  location.hash = "#/load-balancers";
  $("grid").focus();
}

/** Return the id of the load balancer that the address names; empty for none. */
function named() {
  const [, name, ...rest] = location.hash.split("/");
  return name === "load-balancers" ? decodeURIComponent(rest.join("/")) : "";
}

function route() {
  const [, name = ""] = location.hash.split("/");
  const changed = VIEWS.includes(name) ? name : "load-balancers";
  if (changed !== view) $("content").scrollTop = 0;
  view = changed;
  stale = true;
  draw();
  const id = named();
  if (view === "load-balancers" && id) {
    openDetail(id);
    grid.activate(id);
  } else {
    opened = null;
    $("detail").hidden = true;
  }
}

addEventListener("hashchange", route);
addEventListener("keydown", (event) => {
  if (event.key === "/" && !/INPUT|TEXTAREA/.test(document.activeElement?.tagName ?? "")) {
    event.preventDefault();
    $("search").focus();
  } else if (event.key === "Escape" && !$("detail").hidden) close();
});
$("search").addEventListener("input", later);
$("search").addEventListener("keydown", (event) => {
  if (event.key === "ArrowDown" || event.key === "Enter") { event.preventDefault(); $("grid").focus(); }
});

const THEMES = ["", "dark", "light"];
const theme = (value) => {
  if (value) document.documentElement.dataset.theme = value;
  else delete document.documentElement.dataset.theme;
  $("theme").setAttribute("aria-label", `Colours: ${value || "as the system has them"}`);
};
$("theme").addEventListener("click", () => {
  const next = THEMES[(THEMES.indexOf(localStorage.getItem("theme") ?? "") + 1) % THEMES.length];
  localStorage.setItem("theme", next);
  theme(next);
});
theme(localStorage.getItem("theme") ?? "");

setInterval(() => {
  sparks.tick();
  if (opened) $("figures")?.replaceWith(sparks.element(opened.id));
}, 5_000);
setInterval(() => {
  for (const cell of document.querySelectorAll("[data-since]")) cell.textContent = age(cell.dataset.since);
  if (view === "members") {
    stale = true;
    later();
  }
}, 10_000);
route();
