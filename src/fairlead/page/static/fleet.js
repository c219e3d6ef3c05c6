// The fleet: how its parts hang together, its traffic, and what happened to it.

import { diagram } from "./diagram.js";
import { make, rank, when, words } from "./dom.js";
import { chart } from "./spark.js";

const MOST_PARTS = 12;
const MOST_EVENTS = 200;
const KINDS = { change: "Changes", health: "Health", failover: "Failovers", restart: "Restarts" };
const SVG = "http://www.w3.org/2000/svg";
const HOUR_MS = 3_600_000;

let only = "";

/** Draw the view again with events of one kind, or of all. */
const choose = (kind) => {
  only = only === kind ? "" : kind;
  dispatchEvent(new HashChangeEvent("hashchange"));
};

/** Members, hub and proxies with the traffic of the last hour, and the events, newest first. */
export function fleet(tables, sparks) {
  return [
    make("h2", { id: "title-fleet" }, "Fleet"),
    make("div", { class: "tiles" }, tiles(tables, sparks)),
    make("section", { class: "card", "aria-labelledby": "title-topology" },
      make("h3", { id: "title-topology" }, "Members, hub and proxies"), topology(tables)),
    make("section", { class: "card", "aria-labelledby": "title-timeline" },
      make("h3", { id: "title-timeline" }, "Timeline (UTC)"), ...timeline(tables)),
  ];
}

function tiles(tables, sparks) {
  const items = [...tables.lb.values(), ...tables.route.values()];
  const well = items.filter((item) => rank(item) === 2).length;
  const members = [...tables.member.values()];
  const pools = [...tables.pool.values()];
  const tile = (title, value, note, bad, ...more) => make("div", { class: "card tile" },
    make("p", { class: "quiet" }, title), make("p", { class: `value${bad ? " bad" : ""}` }, value), note ? make("p", { class: "quiet" }, note) : null, more);
  return [
    tile("Load balancers and routes", `${well} of ${items.length}`, "without problems", well < items.length),
    tile("Members", `${members.filter((item) => item.connection === "Engaged").length} of ${members.length}`, "connected", members.some((item) => rank(item) < 2)),
    ...pools.slice(0, 3).map((pool) => tile(`Addresses of ${pool.id}`, `${pool.used ?? 0} of ${pool.size ?? 0}`, pool.note === "Full" ? "full" : pool.note ? "almost full" : "used", rank(pool) < 2,
      make("meter", { min: 0, max: pool.size || 1, value: (pool.used ?? 0) + (pool.reserved ?? 0), high: 0.8 * (pool.size || 1), "aria-label": `Addresses of ${pool.id} in use` }))),
    make("div", { class: "card tile wide" }, make("p", { class: "quiet" }, "Traffic of the last hour"),
      sparks.whole ? chart(sparks.whole) : make("p", { class: "quiet" }, "No traffic in the last hour.")),
  ];
}

function topology(tables) {
  const worst = (items) => items.sort((a, b) => rank(a) - rank(b) || a.id.localeCompare(b.id));
  const counts = new Map();
  for (const lb of tables.lb.values()) counts.set(lb.member, (counts.get(lb.member) ?? 0) + 1);
  const [hub] = tables.hub.values();
  const column = (title, nodes) => ({ title, nodes: nodes.slice(0, MOST_PARTS), more: Math.max(0, nodes.length - MOST_PARTS) });
  const members = worst([...tables.member.values()]).map((item) => ({
    id: `member ${item.id}`, text: item.id, state: item.state, href: "#/members",
    note: [item.connection === "Engaged" ? null : item.connection, item.region, `${counts.get(item.id) ?? 0} load balancers`].filter(Boolean).join(" · "),
  }));
  const hubs = hub ? [{ id: "hub", text: hub.id, state: hub.state, note: `${hub.leading ? "leads" : hub.leader ? `on standby for ${hub.leader}` : "no hub leads"} · ${hub.version}` }] : [];
  const machines = worst([...tables.machine.values()]).map((item) => ({
    id: `machine ${item.id}`, text: item.id, state: item.state, href: "#/proxies",
    note: [item.drained ? "drained" : item.ready, `${item.announced ?? 0} addresses`].filter(Boolean).join(" · "),
  }));
  const proxies = worst([...tables.proxy.values()]).map((item) => ({
    id: `proxy ${item.id}`, text: item.id, state: item.state, href: "#/proxies",
    note: `${item.group} · ${item.synced === false ? "behind" : "up to date"}`,
  }));
  const columns = [column("Members", members), column("Hub", hubs), column("Proxies", proxies), ...(machines.length ? [column("Machines", machines)] : [])]
    .filter(({ nodes }) => nodes.length);
  const links = hubs.length ? [
    ...columns.find(({ title }) => title === "Members")?.nodes.map(({ id, state }) => [id, "hub", state]) ?? [],
    ...columns.find(({ title }) => title === "Proxies")?.nodes.map(({ id }) => ["hub", id]) ?? [],
    ...proxies.flatMap((proxy) => machines.filter(({ text }) => proxy.text.split("/").includes(text)).map(({ id }) => [proxy.id, id])),
  ] : [];
  return diagram("Members report to the hub, which configures the proxies", columns, links);
}

function timeline(tables) {
  const all = [...tables.event.values()].sort((a, b) => b.at.localeCompare(a.at) || Number(b.id) - Number(a.id));
  const shown = only ? all.filter((each) => each.kind === only) : all;
  const groups = make("div", { class: "bar", role: "group", "aria-label": "Show only" }, Object.entries(KINDS).map(([kind, title]) => make("button", {
    type: "button", "data-key": kind, "aria-label": `${title}: ${all.filter((each) => each.kind === kind).length}`, "aria-pressed": String(only === kind), onclick: () => choose(kind),
  }, make("span", { class: `kind ${kind}` }, `${title} ${all.filter((each) => each.kind === kind).length}`))));
  if (!all.length) return [make("p", { class: "quiet" }, "Nothing has happened since this hub started.")];
  return [
    groups,
    strip(shown),
    make("ol", { class: "events" }, shown.slice(0, MOST_EVENTS).map(eventRow)),
    shown.length > MOST_EVENTS ? make("p", { class: "quiet" }, `and ${shown.length - MOST_EVENTS} older events`) : null,
  ].filter(Boolean);
}

function eventRow(each) {
  return make("li", { "data-id": each.id, class: each.state ?? "Serving" },
    when(each.at),
    make("span", { class: `kind ${each.kind}` }, KINDS[each.kind].replace(/s$/, "")),
    make("span", { class: "what" },
      each.link ? make("a", { href: `#/load-balancers/${each.link}` }, each.subject) : make("strong", {}, each.subject),
      " ", make("span", { class: rank(each) < 2 ? `state ${each.state}` : null }, each.text),
      (each.count ?? 1) > 1 ? make("span", { class: "quiet" }, ` (${each.count} times)`) : null));
}

/** Return the events on an axis of time, a lane for each kind; the list has the same in words. */
function strip(events) {
  const end = Date.now();
  const oldest = Date.parse(events.at(-1)?.at ?? "") || end;
  const hours = [1, 3, 6, 12, 24].find((each) => end - oldest <= each * HOUR_MS) ?? 24;
  const begin = end - hours * HOUR_MS;
  const lanes = Object.keys(KINDS).filter((kind) => !only || kind === only);
  const height = 16 * lanes.length;
  const svg = document.createElementNS(SVG, "svg");
  for (const [name, value] of Object.entries({ class: "strip", "aria-hidden": "true", viewBox: `0 0 1000 ${height}`, preserveAspectRatio: "none" })) svg.setAttribute(name, value);
  svg.style.height = `${height}px`;
  const draw = (tag, attributes) => {
    const made = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    svg.append(made);
  };
  lanes.forEach((_, lane) => draw("path", { class: "lane", d: `M0 ${16 * lane + 8}H1000` }));
  for (const each of events) {
    const x = (1000 * (Date.parse(each.at) - begin)) / (end - begin);
    if (x >= 0) draw("path", { class: `mark ${each.kind} ${rank(each) < 2 ? each.state : ""}`, d: `M${Math.min(999, x).toFixed(1)} ${16 * lanes.indexOf(each.kind) + 2}v12` });
  }
  return make("div", { class: "axis" }, svg, make("p", { class: "quiet" }, make("span", {}, `${hours} hour${hours > 1 ? "s" : ""} ago`), make("span", {}, "now")));
}
