// One load balancer: why it is as it is, since when, and what happened to it.

import { ago, copyable, make, problem, sentence, table, when } from "./dom.js";
import { stateOf } from "./grid.js";
import { ask } from "./stream.js";

/** Return what is known of one load balancer, null when it is not there; throws when the hub does not answer. */
export async function fetchDetail(item) {
  const path = [item.kind, item.namespace, item.name].map(encodeURIComponent).join("/");
  const answer = await ask(`/page/load-balancers/${path}`);
  if (!answer.ok && answer.status !== 404) throw new Error(await answer.text());
  return answer.ok ? answer.json() : null;
}

/** Say of a load balancer that was asked for, by the address of the page, that it is not there. */
export function drawGone(panel, id, close) {
  panel.replaceChildren(head(id, close),
    problem(`${id} is not there: it was deleted, or it is none that you may list. What happened to it: fairlead explain ${id} --history`, "NotKnown"));
}

function head(title, close) {
  return make("div", { class: "detail-head" },
    make("h2", { id: "detail-title", tabindex: "-1" }, title),
    make("button", { type: "button", onclick: close, "aria-label": "Close the details" }, "Close"));
}

/** Fill the panel; `line` is the element with the figures. */
export function drawDetail(panel, item, detail, close, line) {
  const facts = [
    ["Address", item.address || "pending"], ["Member", item.member || "-"], ["Region", item.region || "-"],
    ["Machines", item.on ?? null], ["Class", item.className || "-"], ["Backends", item.targets || "-"],
    ["Routes", item.routes === undefined ? null : String(item.routes)],
    ["Object", `${item.kind} ${item.namespace}/${item.name}`],
  ].filter(([, text]) => text !== null);
  panel.replaceChildren(
    head(item.shown ?? item.title, close),
    make("p", { class: `state ${item.state ?? "Serving"}` }, stateOf(item), item.since ? [", for ", ago(item.since)] : null),
    ...(item.problems ?? []).map((each) => problem(each, item.state, item.command)),
    line,
    make("dl", {}, facts.flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, text)])),
    ...(detail ? sections(detail, item.command) : []));
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
    ...rows("Addresses on proxy machines", ["Address", "Announced by", "For"], (detail.announced ?? []).map((each) => [
      make("span", { class: "mono" }, each.address), announcedBy(each), each.machines.length && each.since ? ago(each.since) : "-"])),
    ...rows("Backends", ["Backend", "State", "Object"], detail.backends.map((each) => [
      make("span", { class: "mono" }, `${each.listener} ${each.address}`),
      make("span", {}, backendState(each), each.since ? [" ", ago(each.since)] : null, each.why ? make("p", { class: "quiet" }, each.why) : null),
      each.source || "-"]), detail.moreBackends),
    ...rows("Routes", ["Route", "Requests, and where they go"], detail.routes.map((each) => [
      make("span", {}, `${each.kind} ${each.origin}`, make("p", { class: "mono quiet" }, (each.hosts ?? []).join(", ") || "all hosts")),
      make("div", { class: "said" }, each.refused ? make("p", { class: "state NotServing" }, `not served: ${each.refused}`) : null, rules(each))]), detail.moreRoutes),
    ...rows("Conditions", ["Condition", "Reason", "For"], detail.conditions.map((each) => [`${each.type} ${each.status}`,
      make("span", {}, each.reason, each.message ? make("p", { class: "quiet" }, each.message) : null), ago(each.since)])),
    make("h3", {}, "History (UTC), newest first"),
    detail.history.length
      ? make("ol", { class: "history" }, detail.history.toReversed().map(entry))
      : make("p", { class: "quiet" }, "Nothing yet."),
    make("h3", {}, "What is left out, and what each backend waits for"),
    copyable(command),
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
