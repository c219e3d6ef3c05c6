"""Routes and listeners that Envoy would reject or has rejected, so that all others are served.

Envoy rejects a route configuration as a whole and continues with the one before: until the bad route is out, no other
change of that port comes through. Three checks keep it out:

    the listeners of a port     sentences about listeners that cannot be served together
    a rule                      what is known to be rejected; the rule answers 500, with a sentence that names rule,
                                field and next step
    a rejection of Envoy        the route that Envoy's message names, else those that are new since the last good
                                configuration are tried in parts, until one is left. Then the rules of this route

Every attempt has all routes that a proxy has accepted before. What is left out is a part of the configuration's version
(``note``), which a proxy shows when it connects again: the next hub begins with what is served (``resume``).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from hashlib import blake2b
from operator import attrgetter
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from fairlead.api.annotations import read_access_log, read_route_tracing, uncertain_network
from fairlead.model.desired import FrontendSpec
from fairlead.model.http import (
    EVERYONE,
    HEADER_NAME,
    Backend,
    Filters,
    HeaderModifier,
    L7Config,
    L7Listener,
    ListenerProtocol,
    RequestMatch,
    Route,
    Rule,
    ValueMatch,
    hostname_problem,
    unsafe_parts,
)
from fairlead.model.keys import ListenerKey, Protocol
from fairlead.model.observed import RefusedPart
from fairlead.providers.envoy.http.names import http3_ports, normal
from fairlead.providers.envoy.http.route_action import origin_regex, refused_rule, removed_prefix
from fairlead.providers.envoy.http.route_budget import ReducedRoute
from fairlead.providers.envoy.http.route_match import encoded_regex, invalid_expression, invalid_regex, is_every_path
from fairlead.providers.envoy.http.route_table import EncodedRoute
from fairlead.providers.envoy.settings import HTTP3, invalid_settings
from fairlead.providers.envoy.store import shortened

_Part = TypeVar("_Part", Rule, L7Listener)

_SPACE = re.compile(r"\s+")
_NOTE = "-without-"
_WAITS = "the route waits until the rejected route is known; until then the previous version is served, if any"
_RULE_WAITS = "the rule waits until the rejected rule is known"
_NOT_TRIED = "the rejected rule was not found in time; split the route into smaller ones"
#: How many configurations are tried to find the refused rules of a route: enough for four of a hundred.
_MAX_TRIALS = 64


class RefusedRules:
    """The search for the rules of one route that proxies refuse, and what is served of the route meanwhile.

    A part is a rule with all that it does, or what is left of a refused rule: its matches, answered 500. Of parts that
    hold a refused one, the first half is tried with all that are known to be good, and then the other half. The
    matches come first, so no request reaches a rule that was not meant for it, unless its match itself is refused.
    """

    def __init__(self, whole: EncodedRoute, good: Iterable[Rule]) -> None:
        self.whole = whole
        #: The part that is served now; None when nothing can be.
        self.trial: EncodedRoute | None = None
        self._good = {part for rule in good for part in (rule, refused_rule(rule))}
        self._bad: dict[Rule, str] = {}
        self._tried: list[Rule] = []
        #: The rules that are tried next if ``_tried`` holds a refused part, and whether one of both does.
        self._rest: list[Rule] = []
        self._certain = False
        #: Parts that were not tried yet, with whether one of them is refused; the next ones are the last.
        self._untested: list[tuple[list[Rule], bool]] = []
        self._trials = 0
        self._message = ""
        #: Whether a proxy had this before the hub began.
        self.is_resumed = False

    @classmethod
    def resumed(cls, whole: EncodedRoute, rules: Iterable[Rule | None]) -> RefusedRules:
        """Return the state of a route at a proxy from before this hub."""
        search = cls(whole, (rule for rule in rules if rule is not None))
        search.trial, search.is_resumed = search._encoded(), True
        return search

    @property
    def searching(self) -> bool:
        """Return whether rules are being tried."""
        return bool(self._tried)

    @property
    def reduced(self) -> ReducedRoute:
        """Return what is served, and why rules are not."""
        rules = self._served()
        problems: dict[int, str] = {}
        for number, (rule, served) in enumerate(zip(self.whole.rules, rules, strict=True)):
            if rule is not None and served != rule:
                why = self._bad.get(rule) or self._bad.get(refused_rule(rule))
                problems[number] = _refusal(why) if why else _RULE_WAITS
        return ReducedRoute(self.whole.route, rules, problems)

    def start(self, message: str) -> None:
        """Start with the rejection of the whole route."""
        rules = [rule for rule in self.whole.rules if rule is not None]
        parts = [part for part in dict.fromkeys([*map(refused_rule, rules), *rules]) if part not in self._good]
        named = [rule for rule in parts if _is_named([rule], message)]
        self._bad = dict.fromkeys(map(refused_rule, named), message)
        self._untested = [(parts, not named)]
        if not parts:
            # Every rule was accepted before, so what is refused belongs to the route.
            self._good.clear()
        self._message = message
        self._next()

    def follow(self, whole: EncodedRoute) -> None:
        """Continue with the same route, encoded again."""
        if whole is not self.whole:
            self.whole = whole
            self.trial = self._encoded()

    def accepted(self) -> None:
        """Record that a proxy accepted the served parts."""
        self._good.update(self._tried)
        if self._certain:
            self._untested.append((self._rest, True))
        self._next()

    def refused(self, message: str) -> None:
        """Record that a proxy rejected the served parts."""
        if not self._tried:
            self._good.clear()
        if self._certain:
            self._untested.append((self._rest, False))
        self._untested.append((self._tried, True))
        self._message = message
        self._next()

    def _next(self) -> None:
        self._tried, self._rest, self._certain = [], [], False
        while self._untested and not self._tried:
            group, certain = self._untested.pop()
            parts = [part for part in group if refused_rule(part) not in self._bad]
            certain = certain and len(parts) == len(group)
            if (certain and len(parts) == 1) or self._trials >= _MAX_TRIALS:
                is_culprit = certain and len(parts) == 1
                self._bad |= dict.fromkeys(parts, self._message if is_culprit else _NOT_TRIED)
                continue
            half = (len(parts) + 1) // 2 if certain else len(parts)
            self._tried, self._rest, self._certain = parts[:half], parts[half:], certain
        self._trials += 1
        self.trial = self._encoded()

    def _served(self) -> tuple[Rule | None, ...]:
        usable = self._good | set(self._tried)
        return tuple(
            None if rule is None else next((part for part in (rule, refused_rule(rule)) if part in usable), None)
            for rule in self.whole.rules
        )

    def _encoded(self) -> EncodedRoute | None:
        rules = self._served()
        return self.whole.with_rules(rules) if any(rule is not None for rule in rules) else None


class RefusedRoutes:
    """The routes of one load balancer that its proxies refused, or that wait until the refused one is known."""

    def __init__(self) -> None:
        self._blamed: dict[EncodedRoute, str] = {}
        #: By name of a route, the search for its refused rules.
        self._rules: dict[str, RefusedRules] = {}
        #: By the name of the configuration in which a refused route is searched for.
        self._waiting: dict[str, set[EncodedRoute]] = {}
        self._routes: Sequence[EncodedRoute] = ()
        self._present: frozenset[EncodedRoute] = frozenset()
        #: The routes of the last configuration that was sent, and of the last that was accepted, by its name.
        self._sent: dict[str, tuple[str, frozenset[EncodedRoute]]] = {}
        self._good: dict[str, frozenset[EncodedRoute]] = {}
        #: The names of settled configurations: the last one that was sent was accepted, and none waits.
        self._settled: set[str] = set()
        #: By the names of others, versions that say nothing new: those of this search, and those that were resumed.
        self._attempts: dict[str, set[str]] = {}

    @property
    def parts(self) -> list[RefusedPart]:
        """Return which routes are left out: each blamed one with Envoy's message, and those that wait."""
        blamed = [RefusedPart("route", encoded.route.name, message) for encoded, message in self._blamed.items()]
        return blamed + [RefusedPart("route", encoded.route.name, _WAITS) for encoded in self._all_waiting()]

    @property
    def reduced(self) -> list[ReducedRoute]:
        """Return the routes with rules that are left out."""
        return [search.reduced for search in self._rules.values()]

    @property
    def searching(self) -> bool:
        """Return whether routes or rules wait."""
        return bool(self._waiting) or any(search.searching for search in self._rules.values())

    def choose(self, routes: Sequence[EncodedRoute]) -> list[EncodedRoute]:
        """Return the routes to serve; forget routes that no longer exist."""
        self._routes = routes
        if not (self._blamed or self._waiting or self._rules):
            self._present = frozenset(routes)
            return list(routes)
        by_name = {encoded.route.name: encoded for encoded in routes}
        for name, search in list(self._rules.items()):
            whole = by_name.get(name)
            if whole is None or (whole.route, whole.rules) != (search.whole.route, search.whole.rules):
                del self._rules[name]
            else:
                search.follow(whole)
        offered = frozenset(routes)
        self._blamed = {encoded: message for encoded, message in self._blamed.items() if encoded in offered}
        trials = {name: search.trial for name, search in self._rules.items() if search.trial is not None}
        chosen = [trials.get(encoded.route.name, encoded) for encoded in routes if encoded not in self._blamed]
        self._present = frozenset(chosen)
        self._waiting = {name: left for name, waiting in self._waiting.items() if (left := waiting & self._present)}
        waiting = self._all_waiting()
        return [encoded for encoded in chosen if encoded not in waiting]

    def note(self, listeners: set[str]) -> str:
        """Return what is left out at these listeners, for the version of their configuration."""
        excluded = self._blamed.keys() | self._all_waiting()
        tokens = [digest_of(encoded.route) for encoded in excluded if _is_at(encoded, listeners)]
        tokens += [
            _token(search)
            for search in self._rules.values()
            if search.trial not in excluded and _is_at(search.whole, listeners)
        ]
        return _NOTE + ",".join(sorted(tokens)) if tokens else ""

    def sent(self, name: str, version: str, routes: frozenset[EncodedRoute]) -> None:
        """Store the routes of this version of a configuration."""
        self._sent[name] = (version, routes & self._present)
        if name not in self._settled:
            self._attempts.setdefault(name, set()).add(version)

    def forget(self, kept: AbstractSet[str]) -> None:
        """Drop the state of configurations that are no longer wanted."""
        self._sent = {name: sent for name, sent in self._sent.items() if name in kept}
        self._good = {name: good for name, good in self._good.items() if name in kept}
        self._waiting = {name: waiting for name, waiting in self._waiting.items() if name in kept}
        self._attempts = {name: attempts for name, attempts in self._attempts.items() if name in kept}
        self._settled &= kept

    def resume(self, name: str, version: str) -> bool:
        """Leave out what a hub before this one left out of the version that a proxy has; return whether that is new.

        They are tried again once the others are known to be good. Those that wait since a proxy without such a version
        refused what it was sent first are served again: this one has them, and is to keep them.
        """
        tokens = dict(_parsed(token) for token in version.partition(_NOTE)[2].split(",") if token)
        attempts = self._attempts.setdefault(name, set())
        if not tokens or version in attempts or name in self._settled:
            return False
        attempts.add(version)
        accepted = self._known()
        excluded: set[EncodedRoute] = set()
        changed = False
        digests = {encoded: digest_of(encoded.route) for encoded in self._routes}
        for encoded, digest in digests.items():
            search = self._rules.get(encoded.route.name)
            if encoded in accepted or encoded in self._blamed or (search is not None and not search.searching):
                continue
            excluded_rules = tokens.get(digest)
            if excluded_rules is None:
                at_this = search is not None and search.trial in self._sent.get(name, ("", frozenset()))[1]
                changed |= at_this and self._rules.pop(encoded.route.name, None) is not None
            elif excluded_rules:
                rules = _without(encoded.rules, excluded_rules)
                self._rules[encoded.route.name], changed = RefusedRules.resumed(encoded, rules), True
            else:
                changed |= self._rules.pop(encoded.route.name, None) is not None
                excluded.add(encoded)
        others = set[EncodedRoute]().union(*(waiting for at, waiting in self._waiting.items() if at != name))
        before = self._waiting.pop(name, set[EncodedRoute]()) | others
        if excluded:
            self._waiting[name] = excluded
        return changed or excluded | others != before

    def accepted(self, name: str, version: str) -> bool:
        """Record that a proxy accepted a version; return whether other routes are to be tried now."""
        sent = self._sent.get(name)
        if sent is None or sent[0] != version:
            return False
        self._good[name] = sent[1]
        again = False
        for route, search in list(self._rules.items()):
            if search.trial not in sent[1]:
                continue
            if search.searching:
                search.accepted()
                again = True
            elif search.is_resumed:
                del self._rules[route]
                again = True
        # Those that wait are tried once no rule is, so that a refusal has one cause.
        if again or self._waiting.pop(name, None):
            return True
        self._settled.add(name)
        self._attempts.pop(name, None)
        return False

    def refused(self, name: str, version: str, message: str) -> bool:
        """Record that a proxy rejected a version; return whether other routes are to be served now."""
        sent = self._sent.get(name)
        if sent is None or sent[0] != version:
            return False
        self._settled.discard(name)
        new = sorted(
            sent[1] - self._known() or sent[1] - self._good.get(name, frozenset()),
            key=lambda encoded: encoded.route.name,
        )
        culprits = [encoded for encoded in new if _is_named(encoded.rules, message)]
        if not culprits and len(new) == 1:
            culprits = new
        if culprits:
            for encoded in culprits:
                self._blame(encoded, message)
            # Without the refused route all others are another configuration, which may well be good.
            self._waiting.pop(name, None)
        elif new:
            # Those with regular expressions wait; where these are all or none, the second half.
            risky = [encoded for encoded in new if next(patterns(encoded.rules), None) is not None]
            suspected = risky if 0 < len(risky) < len(new) else new[len(new) // 2 :]
            self._waiting.setdefault(name, set()).update(suspected)
        return bool(new)

    def _blame(self, encoded: EncodedRoute, message: str) -> None:
        name = encoded.route.name
        search = self._rules.get(name)
        if search is not None and search.trial is encoded:
            search.refused(message)
        else:
            accepted = (
                rule
                for accepted_route in self._known()
                if accepted_route.route.name == name
                for rule in accepted_route.rules
            )
            search = self._rules[name] = RefusedRules(encoded, filter(None, accepted))
            search.start(message)
        if search.trial is None:
            del self._rules[name]
            self._blamed[search.whole] = _refusal(message)

    def _known(self) -> frozenset[EncodedRoute]:
        """Return the routes that a proxy has accepted."""
        return frozenset[EncodedRoute]().union(*self._good.values())

    def _all_waiting(self) -> set[EncodedRoute]:
        return set[EncodedRoute]().union(*self._waiting.values())


def _is_named(rules: Iterable[Rule | None], message: str) -> bool:
    """Return whether Envoy's message, in which white space is one space, quotes an expression of these rules."""
    return any(f"'{_SPACE.sub(' ', text)}'" in message for text in patterns(rules))


def _refusal(message: str) -> str:
    return f"the proxy refused it: {shortened(message)}"


def _is_at(encoded: EncodedRoute, listeners: set[str]) -> bool:
    return any(attachment.listener in listeners for attachment in encoded.route.attachments)


def _token(search: RefusedRules) -> str:
    """Return the token of a route without some of its rules: ``3`` answers 500, and ``3-`` is left out."""
    rules = zip(search.whole.rules, search.reduced.rules, strict=True)
    changed = ((number, now) for number, (rule, now) in enumerate(rules) if now != rule)
    numbers = [f"{number}-" if now is None else f"{number}" for number, now in changed]
    return ".".join((digest_of(search.whole.route), *numbers))


def _parsed(token: str) -> tuple[str, tuple[str, ...]]:
    """Return the digest of a route and which of its rules are left out; none of these means the route."""
    digest, *numbers = token.split(".")
    return digest, tuple(numbers)


def _without(rules: Sequence[Rule | None], excluded_rules: Sequence[str]) -> list[Rule | None]:
    """Return the remaining rules that a token of ``_token`` describes."""
    return [
        None
        if rule is None or f"{number}-" in excluded_rules
        else refused_rule(rule)
        if f"{number}" in excluded_rules
        else rule
        for number, rule in enumerate(rules)
    ]


def digest_of(route: Route) -> str:
    """Return the token of a route in a note: the same for the same route, in every process."""
    return blake2b(msgspec.json.encode(route), digest_size=8).hexdigest()


def patterns(rules: Iterable[Rule | None]) -> Iterator[str]:
    """Yield the regular expressions of rules: what Envoy names when it refuses one."""
    for rule in rules:
        for match in rule.matches if rule is not None else ():
            if match.path.type == "RegularExpression" and match.path.value:
                yield match.path.value
            for value in (*match.headers, *match.query_params):
                if value.type == "RegularExpression" and value.value:
                    yield value.value


_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_MAX_TOTAL_WEIGHT = 2**32 - 1
#: What Envoy takes of headers to set and add, together.
_MAX_HEADERS = 1000
#: The number of characters of a long value that a sentence shows.
_SHOWN = 60
#: Of a route, so many rules are shown, with the first reason of each. A condition takes 32,768 characters.
_RULES_SHOWN, _LONGEST = 5, 1_200
_PREFIX = re.compile(r"/[^?#]*")


def invalid_hostnames(route: Route) -> RefusedPart | None:
    """Return the refusal of a route of any kind for its hostnames; None when all of them are valid."""
    hostnames = dict.fromkeys(hostname for attachment in route.attachments for hostname in attachment.hostnames)
    problems = [problem for hostname in hostnames if (problem := hostname_problem(hostname))]
    return RefusedPart("route", route.name, _joined(problems)) if problems else None


def checked_route(route: Route) -> ReducedRoute | RefusedPart:
    """Return what is served of a route of kind HTTP or GRPC; the refusal when nothing is.

    A rule that is refused keeps the matches that can be used and answers 500: without it, its requests would reach
    other rules, past a filter that was meant for them.
    """
    if (refusal := invalid_hostnames(route)) is not None:
        return refusal
    for field, text, read in (
        ("accessLog", route.access_log, read_access_log),
        ("tracing", route.tracing, read_route_tracing),
    ):
        try:
            read(text or "off")
        except ValueError as error:
            return RefusedPart("route", route.name, f"{field}: {error}"[:_LONGEST])
    rules: list[Rule | None] = []
    refused: dict[int, str] = {}
    for number, rule in enumerate(route.rules):
        matches = [(match, list(_match(match))) for match in rule.matches]
        problems = [
            f"match {index}: {text}"[:_LONGEST] for index, (_, errors) in enumerate(matches, start=1) for text in errors
        ]
        problems += [text[:_LONGEST] for text in _actions(rule)]
        if not problems:
            rules.append(rule)
            continue
        usable = tuple(match for match, errors in matches if not errors)
        rules.append(None if rule.matches and not usable else Rule(name=rule.name, matches=usable))
        refused[number] = _joined(problems, shown=1)
    return ReducedRoute(route, tuple(rules), refused) if refused else ReducedRoute(route, route.rules)


UNSEEN_CLIENTS = (
    "the proxies do not see the addresses of clients, so all of them are refused; use externalTrafficPolicy: Local, or "
    "acceptProxyProtocol or trustedHops of the class"
)


def closed_to_all(part: _Part) -> _Part:
    """Return a listener or rule that refuses all clients, if it checks the addresses of clients."""
    if not part.checks_sources:
        return part
    return replace(part, allowed_sources=(), denied_sources=EVERYONE)


def without_clients(checked: ReducedRoute) -> ReducedRoute:
    """Return what is served of a route where the proxies do not see the addresses of clients."""
    rules = tuple(rule if rule is None else closed_to_all(rule) for rule in checked.rules)
    unseen = {number for number, rule in enumerate(checked.rules) if rule is not None and rule.checks_sources}
    return checked._replace(rules=rules, problems={**checked.problems, **dict.fromkeys(unseen, UNSEEN_CLIENTS)})


def refused_parts(reduced: ReducedRoute) -> list[RefusedPart]:
    """Return what is to be said of a route: of some of its rules, or of the whole when none is served as written."""
    route, rules, problems = reduced
    if len(problems) == len(rules) > 1 and len(set(problems.values())) == 1:
        return [RefusedPart("route", route.name, text) for text in set(problems.values())]
    reasons: list[str] = []
    for number, problem in sorted(problems.items()):
        suffix = "" if rules[number] is not None else " (left out)"
        reasons.append(f"rule {route.rules[number].name or number + 1}{suffix}: {problem}")
    if len(problems) == len(rules):
        return [RefusedPart("route", route.name, _joined(reasons))]
    return [RefusedPart("rule", route.name, text) for text in reasons]


def _joined(reasons: Sequence[str], *, shown: int = _RULES_SHOWN) -> str:
    """Return the first of several reasons, and the number of the others: they go into a status."""
    more = f"; and {len(reasons) - shown} more" if len(reasons) > shown else ""
    return "; ".join(reasons[:shown]) + more


def _actions(rule: Rule) -> Iterator[str]:
    """Yield the problems of a rule outside its matches."""
    yield from unsafe_parts(rule)
    if problem := uncertain_network((*rule.allowed_sources, *rule.denied_sources)):
        yield f"lists of client addresses: {problem}"
    yield from _filters(rule.filters, rule.matches or (RequestMatch(),))
    for backend in rule.backends:
        for problem in _backend_filters(backend.filters, alone=len(rule.backends) == 1):
            yield f"backend {backend.backend or '(unresolved)'}: {problem}"
    served = {backend.backend for backend in rule.backends if backend.backend and backend.weight}
    if rule.session is not None and rule.session.type == "Header" and len(served) > 1:
        yield "session persistence: a header cannot name one of several backends; use type Cookie, or one backend"
    total = sum(backend.weight for backend in rule.backends)
    if total > _MAX_TOTAL_WEIGHT:
        yield f"the weights of its backends add up to {total}, Envoy takes {_MAX_TOTAL_WEIGHT}; use smaller ones"


def _match(match: RequestMatch) -> Iterator[str]:
    path = match.path
    if path.type == "RegularExpression":
        yield from _regex("path", path.value)
    elif not path.value.startswith("/"):
        yield f"path {path.value!r} does not begin with a slash"
    elif path.type == "PathPrefix" and not is_every_path(path) and not _PREFIX.fullmatch(path.value):
        yield f"path prefix {path.value!r} holds a ? or a #, which no path has; match query parameters instead"
    yield from _text("path", path.value)
    for header in match.headers:
        if not HEADER_NAME.fullmatch(header.name):
            yield f"header: {header.name!r} is not a valid name of a header"
        yield from _value(f"header {header.name}", header)
    for parameter in match.query_params:
        what = f"query parameter {parameter.name}"
        yield from _value(what, parameter)
        if parameter.type == "Exact":
            yield from _expression(what, encoded_regex(parameter.value))


def _value(what: str, match: ValueMatch) -> Iterator[str]:
    if match.type == "RegularExpression":
        yield from _regex(what, match.value)
    yield from _text(what, match.value)


def _filters(filters: Filters, matches: Iterable[RequestMatch]) -> Iterator[str]:
    yield from _modifier("request headers", filters.request_headers)
    yield from _modifier("response headers", filters.response_headers)
    if filters.redirect is not None and filters.rewrite is not None:
        yield "a redirect and a rewrite exclude each other; keep one of them"
    redirect_path = filters.redirect.path if filters.redirect is not None else None
    rewrite_path = filters.rewrite.path if filters.rewrite is not None else None
    for what, modifier in (("redirect", redirect_path), ("rewrite", rewrite_path)):
        if modifier is not None:
            if modifier.type == "ReplacePrefixMatch" and any(match.path.type != "PathPrefix" for match in matches):
                yield f"{what}: ReplacePrefixMatch needs matches of type PathPrefix; use ReplaceFullPath"
            elif modifier.type == "ReplacePrefixMatch" and not modifier.value.rstrip("/"):
                for match in matches:
                    yield from _expression(f"{what}: path prefix", removed_prefix(match.path))
    if filters.cors is not None:
        cors = filters.cors
        for text in (*cors.allow_origins, *cors.allow_methods, *cors.allow_headers, *cors.expose_headers):
            yield from _text("CORS", text)
        for origin in cors.allow_origins:
            if "*" in origin:
                yield from _expression(f"CORS: origin {origin[:_SHOWN]}", origin_regex(origin))


def _expression(what: str, pattern: str) -> Iterator[str]:
    """Yield the problems of an expression that is built from a user's text."""
    if problem := invalid_expression(pattern):
        yield f"{what}: {problem}"


def _backend_filters(filters: Filters, *, alone: bool) -> Iterator[str]:
    yield from _modifier("request headers", filters.request_headers)
    yield from _modifier("response headers", filters.response_headers)
    if filters.redirect is not None or filters.cors is not None or filters.auth is not None:
        yield "a redirect, CORS or external auth belongs to the rule, not to one of its backends"
    if filters.rewrite is not None and filters.rewrite.path is not None:
        yield "a rewrite of the path belongs to the rule, not to one of its backends"
    if filters.mirrors and not alone:
        yield "a mirror belongs to the rule, not to one of several backends"


def _modifier(what: str, modifier: HeaderModifier | None) -> Iterator[str]:
    if modifier is None:
        return
    if (count := len(modifier.set) + len(modifier.add)) > _MAX_HEADERS:
        yield f"{what}: {count} are set or added, Envoy takes {_MAX_HEADERS}; use fewer"
    for header in (*modifier.set, *modifier.add):
        yield from _text(f"{what}: {header.name}", header.value)


def _text(what: str, text: str) -> Iterator[str]:
    if _CONTROL.search(text):
        yield f"{what}: {text!r} holds a control character"


def _regex(what: str, pattern: str) -> Iterator[str]:
    if not pattern:
        yield f"{what}: the regular expression is empty; leave the match away, or use one of type Exact"
    elif problem := invalid_regex(pattern):
        yield f"{what}: the regular expression {pattern!r} cannot be used: {problem}"


#: Protocols of listeners that share a port, chosen by server name.
_TOGETHER: dict[ListenerProtocol, str] = {"HTTP": "HTTP", "HTTPS": "TLS", "TLS": "TLS", "TCP": "TCP", "UDP": "UDP"}


def listeners_by_port(config: L7Config) -> dict[ListenerKey, list[L7Listener]]:
    """Return the listeners of each port, in their order."""
    ports: dict[ListenerKey, list[L7Listener]] = {}
    for listener in config.listeners:
        protocol = Protocol.UDP if listener.protocol == "UDP" else Protocol.TCP
        ports.setdefault(ListenerKey(protocol, listener.port), []).append(listener)
    return ports


def invalid_config(spec: FrontendSpec, config: L7Config) -> list[str]:
    """Return the error in the L7 part of a spec or its parameters; empty if both are valid."""
    settings = invalid_settings(spec.parameters)
    quic = () if settings else _taken_by_udp(config, http3_ports(spec))
    return [*_listeners(spec, config), *_names(config), *settings, *quic]


def _listeners(spec: FrontendSpec, config: L7Config) -> Iterator[str]:
    ports = listeners_by_port(config)
    opened = {listener.key for listener in spec.listeners}
    for key in sorted(opened ^ ports.keys()):
        yield f"port {key} is {'opened without a listener' if key in opened else 'not among the opened ports'}"
    for listener in config.listeners:
        if problem := hostname_problem(listener.hostname):
            yield f"listener {listener.name}: {problem}"
    for key, listeners in ports.items():
        kinds = {_TOGETHER[listener.protocol] for listener in listeners}
        if len(kinds) > 1:
            yield f"port {key} has listeners of {' and '.join(sorted(kinds))}, which cannot share it"
        hostnames = Counter(normal(listener.hostname) for listener in listeners)
        for hostname in sorted(name for name, count in hostnames.items() if count > 1):
            yield f"port {key} has two listeners with the hostname {hostname or '*'}"
        if kinds & {"TCP", "UDP"} and any(hostnames):
            yield f"port {key} has a listener of TCP or UDP with a hostname, which it cannot see"


def _taken_by_udp(config: L7Config, ports: Iterable[int]) -> Iterator[str]:
    for number in ports:
        if any(listener.protocol == "UDP" and listener.port == number for listener in config.listeners):
            yield f"port UDP/{number} has a listener, so HTTP/3 cannot be served there; set {HTTP3} to false"


_NAME: Callable[[L7Listener | Route | Backend], str] = attrgetter("name")


def _names(config: L7Config) -> Iterator[str]:
    for what, parts in (("listener", config.listeners), ("route", config.routes), ("backend", config.backends)):
        if len(set(map(_NAME, parts))) < len(parts):
            twice = sorted(name for name, count in Counter(map(_NAME, parts)).items() if count > 1)
            yield f"{what} {', '.join(twice)} is there twice"
