// One load balancer: why it is as it is, since when, and what happened to it.

import { diagram } from "./diagram.js";
import { ago, copyable, make, problem, sentence, table, when } from "./dom.js";
import { stateOf } from "./grid.js";
import { actionsOf, ask as request, session } from "./stream.js";

/** Return what is known of one load balancer, null when it is not there; throws when the hub does not answer. */
export async function fetchDetail(item) {
  // What is known of a route is what its first load balancer knows of it; what is rejected has none.
  const [id, query] = item.loadBalancers ? [item.loadBalancers[0], `?route=${encodeURIComponent(item.id)}`] : [item.id, ""];
  if (!id) return null;
  const [answer, may] = await Promise.all([
    request(`/page/load-balancers/${id.split("/").map(encodeURIComponent).join("/")}${query}`),
    session.token && !item.loadBalancers ? request(actionsOf(item)) : null,
  ]);
  if (!answer.ok && answer.status !== 404) throw new Error(await answer.text());
  if (!answer.ok) return null;
  return { ...await answer.json(), ...(may?.ok ? await may.json() : { refusal: may ? await may.text() : "" }) };
}

/** Say of a load balancer that was asked for, by the address of the page, that it is not there. */
export function drawGone(panel, id, close) {
  panel.replaceChildren(head(id, close),
    problem(`${id} was deleted, or you may not list it. For the history: fairlead explain ${id} --history`, "NotKnown"));
}

function head(title, close) {
  return make("div", { class: "detail-head" },
    make("h2", { id: "detail-title", tabindex: "-1" }, title),
    make("button", { type: "button", onclick: close, "aria-label": "Close the details" }, "Close"));
}

/** Fill the panel; `on` closes it, acts and signs in, `figures` is the element with the traffic. */
export function drawDetail(panel, item, detail, on, figures) {
  const facts = [
    ["Address", item.address || "pending"], ["Member", item.member || "-"], ["Region", item.region || "-"],
    ["Machines", item.on ?? null], ["Class", item.className ?? null], ["Hosts", item.hosts ?? null],
    [item.loadBalancers ? "Services" : "Backends", item.targets || "-"],
    ["Routes", item.routes === undefined ? null : String(item.routes)],
    ["Object", item.loadBalancers ? null : `${item.kind} ${item.namespace}/${item.name}`],
  ].filter(([, text]) => text !== null);
  panel.replaceChildren(
    head(item.shown ?? item.title, on.close),
    make("p", { class: `state ${item.state ?? "Serving"}` }, stateOf(item), item.since ? [", for ", ago(item.since)] : null),
    ...(item.problems ?? []).map((each) => problem(each, item.state, item.command)),
    ...(item.loadBalancers ? [] : actions(item, detail, on)),
    ...chain(item, detail?.chain),
    make("h3", {}, "Traffic of the last hour"), figures,
    make("dl", {}, facts.flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, text)]),
      item.loadBalancers?.length ? [make("dt", {}, "Served by"), make("dd", {}, item.loadBalancers.flatMap((id, at) => [at ? ", " : "", make("a", { href: `#/load-balancers/${id}` }, id.split("/").slice(1).join("/"))]))] : []),
    ...(detail ? sections(detail, item.command) : []));
}

/** Return what requests pass, from their clients to the backends. */
function chain(item, known) {
  if (!known) return [];
  return [make("h3", {}, "From client to backend"), diagram(`Path of requests to ${item.shown ?? item.title}`, known.columns, known.links)];
}

// The change that the viewer is asked about: the id of a load balancer, and an action.
let asked = "";

/** Return the buttons for what the token of this tab may do; without one, the way to use one. */
function actions(item, detail, on) {
  if (!detail) return [];
  if (!session.token) {
    return [make("div", { class: "bar actions" }, make("button", { type: "button", onclick: () => on.signIn("Pause, resume and maintenance need a token that may change this load balancer.") }, "Sign in to make changes"))];
  }
  if (!detail.actions?.length) {
    return [make("div", { class: "bar actions" }, make("p", { class: "quiet" }, detail.refusal?.trim() || `${detail.viewer} may not change this load balancer.`),
      make("button", { type: "button", onclick: () => on.signIn("Use another token.") }, "Use another token"))];
  }
  const title = item.shown ?? item.title;
  const offered = [
    detail.paused
      ? ["resume", "Resume", `Apply the held changes of ${title} now?`, `${title} is resumed`]
      : ["pause", "Pause", `Hold all changes of ${title} until somebody resumes it?`, `${title} is paused`],
    detail.actions.includes("maintenance") && (detail.maintenance
      ? ["end-maintenance", "End maintenance", `Serve the routes of ${title} again?`, `The routes of ${title} are served again`]
      : ["maintenance", "Maintenance", `Answer all requests to ${title} with 503 for one hour?`, `${title} is in maintenance for one hour`]),
  ].filter(Boolean);
  const box = make("div", { class: "bar actions", role: "group", "aria-label": "Changes" });
  const button = (name, onclick, attributes) => make("button", { type: "button", "aria-label": `${name}: ${title}`, onclick, ...attributes }, name);
  const offer = () => {
    asked = "";
    box.replaceChildren(...offered.map((each) => button(each[1], () => ask(each, true), { "data-action": each[0] })), make("span", { class: "quiet" }, `as ${detail.viewer}`));
  };
  // What is being asked stays while the panel is drawn again.
  const ask = ([action, name, question, done], focus = false) => {
    asked = `${item.id} ${action}`;
    const yes = button(name, async () => {
      yes.disabled = true;
      const refusal = await on.act(item, action, done);
      if (refusal) box.replaceChildren(make("p", { class: "state NotServing" }, refusal), button("Back", offer));
    }, { class: "main" });
    box.replaceChildren(make("p", {}, question), yes, button("Cancel", () => { offer(); box.querySelector(`[data-action=${action}]`).focus(); }));
    if (focus) yes.focus();
  };
  const asking = offered.find(([action]) => asked === `${item.id} ${action}`);
  if (asking) ask(asking);
  else offer();
  return [box];
}

function rows(title, headers, lines, more = 0) {
  if (!lines.length) return [];
  return [
    make("h3", {}, title),
    table(title, headers, lines.map((cells) => make("tr", {}, cells.map((cell) => make("td", {}, cell))))),
    more ? make("p", { class: "quiet" }, `and ${more} more`) : null,
  ].filter(Boolean);
}

const GOOD = new Set(["Served", "Registered"]);
const backendState = (each) => make("span", { class: `state ${GOOD.has(each.state) ? "Serving" : each.state === "Unhealthy" || each.state === "Failed" ? "NotServing" : "NeedsAttention"}` }, each.state);

function sections(detail, command) {
  return [
    ...rows("Held changes", ["Change", "Held by"], detail.held.map((each) => [each.what, make("div", { class: "said" }, sentence(`${each.heldBy}: ${each.message}`))]), detail.moreHeld),
    ...rows("Members", ["Member", "Share", "Endpoints", "State"], (detail.members ?? []).map((each) => [
      make("span", {}, each.member, each.service ? make("p", { class: "quiet" }, each.service) : null),
      `${each.share}, tier ${each.tier}`, each.endpoints || "-",
      make("span", {}, make("span", { class: `state ${each.trouble}` }, each.state), each.message ? make("p", { class: "quiet" }, each.message) : null,
        each.silentSince ? make("p", { class: "quiet" }, "agent silent for ", ago(each.silentSince)) : null)])),
    ...rows("Addresses on proxy machines", ["Address", "Announced by", "For"], (detail.announced ?? []).map((each) => [
      make("span", { class: "mono" }, each.address), announcedBy(each), each.machines.length && each.since ? ago(each.since) : "-"])),
    ...rows("Backends", ["Backend", "State", "Object"], detail.backends.map((each) => [
      make("span", { class: "mono" }, `${each.listener} ${each.address}`),
      make("span", {}, backendState(each), each.since ? [" ", ago(each.since)] : null, each.why ? make("p", { class: "quiet" }, each.why) : null),
      [each.member, each.source].filter(Boolean).join(" ") || "-"]), detail.moreBackends),
    ...rows("Routes", ["Route", "Requests and backends"], detail.routes.map((each) => [
      make("span", {}, `${each.kind} ${each.origin}`, make("p", { class: "mono quiet" }, (each.hosts ?? []).join(", ") || "all hosts")),
      make("div", { class: "said" }, each.refused ? make("p", { class: "state NotServing" }, `not served: ${each.refused}`) : null, rules(each))]), detail.moreRoutes),
    ...rows("Conditions", ["Condition", "Reason", "For"], detail.conditions.map((each) => [`${each.type} ${each.status}`,
      make("span", {}, each.reason, each.message ? make("p", { class: "quiet" }, each.message) : null), ago(each.since)])),
    make("h3", {}, "History (UTC), newest first"),
    detail.history.length
      ? make("ol", { class: "history" }, detail.history.toReversed().map(entry))
      : make("p", { class: "quiet" }, "No history yet."),
    ...(command ? [make("h3", {}, "Excluded backends and pending changes"), copyable(command)] : []),
  ];
}

/** Return who announces an address and where packets go, the last failover, and what is wrong. */
function announcedBy(each) {
  const places = each.macs.length ? each.macs : each.nextHops;
  return make("div", { class: "said" },
    each.machines.length ? make("span", {}, each.machines.join(", "),
      places.length ? make("span", { class: "mono quiet" }, ` ${each.macs.length ? "at" : "next hop"} ${places.join(", ")}`) : null) : null,
    each.problem ? make("p", { class: `state ${each.machines.length ? "NeedsAttention" : "NotServing"}` }, sentence(each.problem)) : null,
    each.cause ? make("p", { class: "quiet" }, each.cause) : null,
    each.failoverTime ? make("p", { class: "quiet" }, "last failover ", ago(each.failoverTime), ` ago: ${each.failoverCause}`) : null,
    ...each.sessions.filter((session) => !session.up).map((session) => make("p", { class: "state NeedsAttention" }, sentence(`session of ${session.machine} with ${session.peer}: ${session.state}${session.problem ? `, ${session.problem}` : ""}`))));
}

function rules(route) {
  return make("ol", { class: "rules" },
    (route.rules ?? []).map((rule) => make("li", {},
      rule.takes.length ? make("code", {}, rule.takes.join(" or ")) : null,
      make("p", {}, `→ ${rule.goes.join(", ") || "no backend"}`))),
    route.moreRules ? make("li", { class: "quiet" }, `and ${route.moreRules} more`) : null);
}

function entry(each) {
  const rows = (each.rows ?? []).map((row) => `${row.action} ${(row.targets ?? []).join(", ") || "the load balancer itself"}: ${row.answer}${row.message ? `, ${row.message}` : ""}`);
  const times = each.count > 1 ? ` (${each.count} times)` : "";
  return make("li", {}, when(each.at), make("span", { class: each.kind }, each.kind), ` ${each.text}${times}`,
    ...rows.map((text) => make("p", { class: "quiet" }, text)));
}
