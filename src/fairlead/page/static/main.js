// The page: takes the hub's changes into tables, and draws what is looked at.

import { age, announce, make, rank, redraw, words } from "./dom.js";
import { drawDetail, drawGone, fetchDetail } from "./detail.js";
import { fleet } from "./fleet.js";
import { Grid } from "./grid.js";
import { Sparks } from "./spark.js";
import { change, follow, session } from "./stream.js";
import * as views from "./views.js";

const $ = (id) => document.getElementById(id);
// The items that each view is about: what is not well of them is counted next to its name.
const ABOUT = { "load-balancers": ["lb", "route"], fleet: ["event"], plan: ["plan"], regions: ["region"], members: ["member", "shared"], proxies: ["class", "proxy", "machine", "pool", "group"], names: ["name", "zone", "certificate"] };
// What else a view is drawn from: it is drawn again only when something in these has changed.
const ALSO_FROM = { fleet: ["hub", "member", "proxy", "machine", "pool", "lb", "route"], plan: ["hub"], members: ["lb"] };
const VIEWS = Object.keys(ABOUT);
const tables = Object.fromEntries([...Object.values(ABOUT).flat(), "hub", "traffic"].map((name) => [name, new Map()]));
const STATES = ["NotServing", "NotKnownYet", "NeedsAttention", "Serving", "Idle"];
const COUNTED = { NotServing: "not serving", NotKnownYet: "not known yet", NeedsAttention: "with a problem", Serving: "serving", Idle: "idle" };

let only = "";
let order = [];
let view = "load-balancers";
let opened = null;
let drawing = false;
// While a button of the mouse is down, nothing is drawn: the click of an element that is replaced is lost.
let pressed = false;
let stale = true;
// When the hub was heard last, null before it was heard at all; while the connection is open, what is shown is of now.
let heard = null;
// What the details show was made from, empty while they show nothing of a load balancer.
let detailed = "";

const sparks = new Sparks(tables.traffic, () => {
  grid.drawTraffic();
  if (opened) drawFigures();
  if (view === "fleet") { stale = true; later(); }
});
const grid = new Grid($("grid"), (item) => {
  const hash = `#/load-balancers/${item.id}`;
  if (location.hash === hash) openDetail(item.id);
  else location.hash = hash;
}, sparks);

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
    grid.changed([...before.keys(), ...(data.set.route ?? []).map((item) => item.id)]);
    take(data);
    say([...before].filter(([id, old]) => (old?.state ?? "Serving") !== (tables.lb.get(id).state ?? "Serving")).map(([id]) => tables.lb.get(id)),
      (data.set.member ?? []).filter((item) => rank(item) < 2));
    const id = named();
    if (before.has(id) || data.gone.lb?.includes(id) || data.set.route?.some((item) => item.id === id) || data.gone.route?.includes(id)) openDetail(id, false);
  },
  lost(sentence) {
    if (heard && $("connection").hidden) heard = new Date();
    $("connection").textContent = `${sentence} Reconnecting. ${heard ? `The data shown is from ${heard.toISOString().slice(0, 19).replace("T", " ")} UTC and may be outdated.` : "No data has been read yet."}`;
    $("connection").hidden = false;
    later();
  },
  refused(sentence) {
    session.token = "";
    $("connection").hidden = true;
    return signIn(sentence);
  },
});

/** Ask for a token; return whether one was given. `optional`: the page is usable without one. */
function signIn(sentence, optional = false) {
  $("content").hidden = true;
  $("sign-in").hidden = false;
  $("sign-in-not").hidden = !optional;
  $("sign-in-why").textContent = sentence;
  $("token").value = "";
  $("token").focus();
  return new Promise((resume) => {
    $("sign-in").onsubmit = (event) => {
      event.preventDefault();
      session.token = $("token").value.trim();
      $("token").value = "";
      resume(true);
    };
    $("sign-in-not").onclick = () => resume(false);
  });
}

/** Sign in to change something, where everything is shown without a token. */
async function signInToChange(sentence) {
  await signIn(sentence, true);
  $("sign-in").hidden = true;
  $("content").hidden = false;
  detailed = "";
  if (opened) openDetail(opened.id);
}

function take(data) {
  for (const [name, items] of Object.entries(data.set)) for (const item of items) tables[name]?.set(item.id, item);
  for (const [name, ids] of Object.entries(data.gone)) for (const id of ids) tables[name]?.delete(id);
  if (data.set.traffic || data.gone.traffic) grid.drawTraffic();
  if (data.set.lb || data.gone.lb || data.set.route || data.gone.route) {
    order = [];
    stale = distinguish() || stale;
  }
  // The empty plan counts load balancers; a plan with rows is left as it is, and with it what is selected there.
  const from = [...ABOUT[view], ...(ALSO_FROM[view] ?? []), ...(view === "plan" && !tables.plan.size ? ["lb"] : [])];
  stale ||= from.some((name) => data.set[name] || data.gone[name]);
  later();
}

/** Have the kind in what is shown of those that have one title, as `fairlead status` has it; return whether one changed. */
function distinguish() {
  const counts = new Map();
  for (const { title } of tables.lb.values()) counts.set(title, (counts.get(title) ?? 0) + 1);
  let changed = false;
  for (const [id, item] of tables.lb) {
    const shown = counts.get(item.title) > 1 ? item.fullTitle : item.title;
    if (shown === (item.shown ?? item.title)) continue;
    tables.lb.set(id, { ...item, shown });
    changed = true;
  }
  return changed;
}

function say(changed, members) {
  const bad = changed.filter((item) => item.state === "NotServing");
  if (changed.length === 1) announce(`${changed[0].shown ?? changed[0].title} ${words(changed[0].state ?? "Serving")}`);
  else if (changed.length) announce(`${changed.length} load balancers changed, ${bad.length} not serving`);
  else if (members.length) announce(members[0].problems?.[0] ?? "");
}

function later() {
  if (drawing) return;
  drawing = true;
  if (!pressed) requestAnimationFrame(drawNow);
}

function drawNow() {
  if (pressed) return;
  drawing = false;
  draw();
}

function release() {
  pressed = false;
  if (drawing) requestAnimationFrame(drawNow);
}

function draw() {
  drawHub();
  for (const name of VIEWS) {
    $(`view-${name}`).hidden = name !== view;
    drawLink(document.querySelector(`nav a[href="#/${name}"]`), name);
  }
  if (view === "load-balancers") drawLoadBalancers();
  else if (stale && heard) {
    stale = false;
    const box = $(`view-${view}`);
    redraw(box, () => box.replaceChildren(...(view === "fleet" ? fleet(tables, sparks) : views[view](tables))));
  }
}

/** Say which hub this is, and of it what is wrong; of one that is not connected, only that. */
function drawHub() {
  const [hub] = tables.hub.values();
  if (!hub) return;
  const connected = $("connection").hidden;
  const leads = hub.leading ? "leads" : hub.leader ? `is on standby for ${hub.leader}` : "is on standby";
  $("hub").textContent = `Hub ${hub.id} ${connected ? leads : "is not connected"} · ${hub.version}`;
  $("hub").title = $("hub").textContent;
  const troubles = [
    ...(hub.leading || hub.leader ? [] : ["No hub leads. Changes wait until one does, and the data shown may be outdated."]),
    ...(hub.problems ?? []).map((each) => `This hub is not ready: ${each}`),
  ];
  const text = troubles.join("\n");
  $("trouble").hidden = !connected || !text;
  if ($("trouble").textContent !== text) $("trouble").textContent = text;
}

/** Count next to a view's name what is not well in it; of the plan what is held. */
function drawLink(link, name) {
  if (name === view) link.setAttribute("aria-current", "page");
  else link.removeAttribute("aria-current");
  let count = 0;
  let worst = 2;
  for (const table of ABOUT[name]) {
    for (const item of tables[table].values()) {
      if (name === "fleet") continue; // what happened is not a task
      count += name === "plan" ? item.held ?? 0 : Number(rank(item) < 2);
      worst = Math.min(worst, rank(item));
    }
  }
  const [text, badge] = link.childNodes;
  badge.hidden = !count;
  badge.textContent = count;
  badge.classList.toggle("bad", !worst);
  const title = `${text.textContent.trim()}${count ? `, ${count} ${name === "plan" ? "held" : "with a problem"}` : ""}`;
  link.title = count ? title : "";
  link.setAttribute("aria-label", title);
}

// A row with the faults of a route, by that route: the same object until one of the two changes, so that the grid keeps the row.
const merged = new WeakMap();

/** Return the row of a load balancer with the faults of the object that it is for. */
function withFaults(lb, route) {
  const before = merged.get(route);
  if (before?.lb === lb) return before.row;
  const row = { ...lb, state: rank(lb) < 2 ? lb.state : "NeedsAttention", reason: rank(lb) < 2 ? lb.reason : route.reason, problems: [...lb.problems ?? [], ...route.problems ?? []] };
  merged.set(route, { lb, row });
  return row;
}

/** Return what is listed: an object whose load balancer is listed already gets its faults there. */
function rowsOf() {
  const byTitle = new Map([...tables.lb.values()].map((item) => [item.fullTitle, item.id]));
  const rows = new Map(tables.lb);
  for (const route of tables.route.values()) {
    const lb = rows.get(byTitle.get(route.title));
    if (lb) rows.set(lb.id, withFaults(lb, route));
    else rows.set(route.id, route);
  }
  return [...rows.values()];
}

function drawLoadBalancers() {
  if (!order.length) {
    order = rowsOf().sort((a, b) => rank(a) - rank(b) || (a.title < b.title ? -1 : 1));
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
    && (!wanted || `${item.title} ${item.fullTitle ?? ""} ${item.address ?? ""} ${item.on ?? ""} ${item.member} ${item.region ?? ""} ${item.className ?? ""} ${item.reason} ${item.name ?? ""} ${item.hosts ?? ""} ${item.targets ?? ""}`.toLowerCase().includes(wanted)));
  grid.set(shown);
  $("grid").dataset.empty = shown.length || !heard ? "" : order.length ? "No load balancer or route matches."
    : `No load balancers yet. ${tables.member.size ? "Create a Service of type LoadBalancer in a member to get one." : "Add a member first: fairlead tenant add NAME"}${session.token ? " Your token may not be allowed to list all of them." : ""}`;
}

async function openDetail(id, focus = true) {
  const item = order.find((each) => each.id === id) ?? tables.lb.get(id) ?? tables.route.get(id);
  opened = item ?? null;
  $("detail").hidden = !item && !heard;
  if (!item) {
    detailed = "";
    if (heard) drawGone($("detail"), id, close);
    return;
  }
  const draw = (detail) => {
    // What is selected in it stays selected while nothing changes.
    const from = JSON.stringify([item, detail]);
    if (from === detailed) return;
    detailed = from;
    const kept = $("detail").scrollTop;
    redraw($("detail"), () => drawDetail($("detail"), item, detail, { close, act, signIn: signInToChange }, sparks.element(item)), "detail-title");
    $("detail").scrollTop = kept;
  };
  if (focus) {
    draw(null);
    $("detail-title").focus();
  }
  try {
    const detail = await fetchDetail(item);
    if (opened === item) draw(detail);
  } catch {
    // The hub does not answer, which the banner says: what was read before stays.
  }
}

/** Do something to a load balancer with the token of this tab; return why that was refused, empty when it is done. */
async function act(item, action, done) {
  let refusal = "";
  try {
    const answer = await change(item, action);
    refusal = answer.ok ? "" : (await answer.text()).trim();
  } catch {
    refusal = "The hub does not answer. Check whether the change was made, then try again.";
  }
  announce(refusal || done);
  if (!refusal) {
    detailed = "";
    if (opened?.id === item.id) openDetail(item.id, false);
  }
  return refusal;
}

function drawFigures() {
  const item = opened;
  $("figures")?.replaceWith(sparks.element(item));
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
  if (view === "fleet") {
    sparks.want([], true);
    sparks.later();
  }
  draw();
  const id = named();
  if (view === "load-balancers" && id) {
    openDetail(id);
    grid.activate(id);
  } else {
    opened = null;
    detailed = "";
    $("detail").hidden = true;
  }
}

addEventListener("hashchange", route);
addEventListener("pointerdown", () => { pressed = true; }, true);
for (const name of ["pointerup", "pointercancel"]) addEventListener(name, () => setTimeout(release), true); // after the click
addEventListener("blur", () => setTimeout(release)); // of the window only: a press takes the focus of an element
addEventListener("keydown", (event) => {
  if (event.key === "/" && !/INPUT|TEXTAREA/.test(document.activeElement?.tagName ?? "")) {
    event.preventDefault();
    if (view !== "load-balancers") {
      location.hash = "#/load-balancers";
      route();
    }
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
  $("theme").setAttribute("aria-label", `Colours: ${value || "system setting"}`);
};
$("theme").addEventListener("click", () => {
  const next = THEMES[(THEMES.indexOf(localStorage.getItem("theme") ?? "") + 1) % THEMES.length];
  localStorage.setItem("theme", next);
  theme(next);
});
theme(localStorage.getItem("theme") ?? "");

setInterval(() => {
  if (view === "load-balancers") grid.draw();
  else if (view === "fleet") sparks.want([], true);
  if (!opened) return;
  drawFigures();
  // Backends and history change without their load balancer.
  if ($("connection").hidden) openDetail(opened.id, false);
}, 5_000);
setInterval(() => {
  for (const cell of document.querySelectorAll("[data-since]")) cell.textContent = age(cell.dataset.since);
}, 10_000);
route();
