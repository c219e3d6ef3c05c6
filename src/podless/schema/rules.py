"""Evaluate ``x-kubernetes-validations``: CEL rules, with ``oldSelf`` for transitions.

In: the new value, the old one (or None) and the node. Out: causes.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise
from typing import Any, cast
from urllib.parse import urlsplit

from podless.failure import Cause, invalid_value
from podless.objects import Obj, same
from podless.schema.formats import matches_format, parse_check
from podless.schema.node import SchemaNode
from podless.schema.validate import by_key, key_of

_OLD = re.compile(r"\boldSelf\b")
_PREFIXES = {
    "FieldValueForbidden": "Forbidden",
    "FieldValueRequired": "Required value",
    "FieldValueDuplicate": "Duplicate value",
}


class Rules:
    """Compiled CEL programs of one server, by their text."""

    def __init__(self) -> None:
        self._programs: dict[str, Any] = {}

    def check(self, expression: str) -> str:
        """Return why ``expression`` cannot be compiled, or an empty text."""
        import cel  # loads its own command line, too: 0.2 s that an API without rules does not need

        try:
            self._programs[expression] = cel.compile(expression)
        except ValueError as error:
            return f"compilation failed: {error}"
        return ""

    def evaluate(self, value: Any, old: Any, node: SchemaNode, path: str, causes: list[Cause]) -> None:
        """Append a cause for every rule that fails at and below ``value``."""
        if not node.has_rules or value is None:
            return
        if node.rules:
            seen, seen_before = _as_seen(value, node), _as_seen(old, node)
            broken = (self._broken(rule, seen, seen_before, path) for rule in node.rules)
            causes += [cause for cause in broken if cause is not None]
        if isinstance(value, dict):
            before = cast("Obj", old) if isinstance(old, dict) else {}
            for key, item in cast("Obj", value).items():
                if (sub := node.child(key)) is not None:
                    self.evaluate(item, before.get(key), sub, f"{path}.{key}" if path else key, causes)
        elif isinstance(value, list) and node.items is not None:
            earlier = by_key(old, node)
            for index, item in enumerate(cast("list[Any]", value)):
                self.evaluate(item, earlier.get(key_of(item, node)), node.items, f"{path}[{index}]", causes)

    def _broken(self, rule: Obj, value: Any, old: Any, path: str) -> Cause | None:
        expression = cast("str", rule["rule"])
        transition = bool(_OLD.search(expression))
        if old is None and not rule.get("optionalOldSelf") and transition:
            return None
        if old is not None and not transition and same(value, old):
            return None  # ratcheting: it failed for the old value, too (validate.py)
        field = path + rule.get("fieldPath", "") if path else rule.get("fieldPath", "").lstrip(".")
        field = field or "<nil>"
        try:
            verdict = self._run(expression, value, old)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            return invalid_value(field, value, f"rule evaluation error: {error}: {expression}")
        if verdict is True:
            return None
        reason = rule.get("reason") or "FieldValueInvalid"
        message = self._message(rule, value, old)
        return Cause(reason, f"{_PREFIXES.get(reason, 'Invalid value')}: {message}", field)

    def _message(self, rule: Obj, value: Any, old: Any) -> str:
        if computed := rule.get("messageExpression"):
            try:
                text = self._run(computed, value, old)
            except (KeyError, TypeError, ValueError, RuntimeError):
                text = ""
            if isinstance(text, str) and text:
                return text
        return rule.get("message") or f"failed rule: {rule['rule']}"

    def _run(self, expression: str, value: Any, old: Any) -> Any:
        program = self._programs.get(expression)
        if program is None:
            if why := self.check(expression):
                raise ValueError(why)
            program = self._programs[expression]
        import cel
        from cel.stdlib import add_stdlib_to_context

        context = cel.Context({"self": value, "oldSelf": old})
        if program.functions():
            add_stdlib_to_context(context)
            for name, function in FUNCTIONS.items():
                context.add_function(name, function)
        return program.execute(context)


def _as_seen(value: Any, node: SchemaNode) -> Any:
    """Return ``value`` with the escaped names of properties; keys of maps are not escaped."""
    if not node.has_escaped:
        return value
    if isinstance(value, dict):
        mapping = cast("Obj", value)
        return {
            node.escaped.get(key, key): _as_seen(item, sub) if (sub := node.child(key)) is not None else item
            for key, item in mapping.items()
        }
    if isinstance(value, list) and node.items is not None:
        return [_as_seen(item, node.items) for item in cast("list[Any]", value)]
    return value


_DECIMAL = {"": 1, "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "k": 10**3, "M": 10**6, "G": 10**9}
_BINARY = {"T": 10**12, "P": 10**15, "E": 10**18, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
_SUFFIX: dict[str, Any] = {**_DECIMAL, **_BINARY}
_QUANTITY = re.compile(r"^([-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?)([numkMGTPE]?|[KMGTP]i)\Z")


def quantity(text: str) -> float:
    """Return the value of a Kubernetes quantity such as ``500m`` or ``1Gi``."""
    match = _QUANTITY.match(str(text))
    if match is None:
        raise ValueError(f"{text!r} is not a quantity")
    try:
        return float(Decimal(match.group(1)) * _SUFFIX[match.group(2)])
    except (ArithmeticError, OverflowError) as error:
        raise ValueError(f"{text!r} is not a quantity") from error


def _cidr(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    return ipaddress.ip_network(text, strict=False)


def _find(text: str, pattern: str) -> str:
    match = re.search(pattern, text)
    return match.group(0) if match else ""


def _index_of(value: Any, wanted: Any) -> int:
    if isinstance(value, str):
        return value.find(wanted)
    return next((index for index, item in enumerate(value) if item == wanted), -1)


def _url(text: str) -> str:
    if not matches_format(text, "uri"):
        raise ValueError(f"{text!r} is not a URL")
    return text


def _ordered(values: list[Any]) -> bool:
    return all(a <= b for a, b in pairwise(values))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "quantity": quantity,
    "isQuantity": parse_check(quantity),
    "isLessThan": lambda a, b: a < b,
    "isGreaterThan": lambda a, b: a > b,
    "compareTo": lambda a, b: (a > b) - (a < b),
    "ip": lambda text: str(ipaddress.ip_address(text)),
    "isIP": parse_check(ipaddress.ip_address),
    "family": lambda text: ipaddress.ip_address(text).version,
    "isLoopback": lambda text: ipaddress.ip_address(text).is_loopback,
    "isUnspecified": lambda text: ipaddress.ip_address(text).is_unspecified,
    "cidr": lambda text: str(_cidr(text)),
    "isCIDR": lambda text: matches_format(text, "cidr"),
    "containsIP": lambda net, address: ipaddress.ip_address(address) in _cidr(net),
    "prefixLength": lambda net: _cidr(net).prefixlen,
    "url": _url,
    "isURL": lambda text: matches_format(text, "uri"),
    "getScheme": lambda text: urlsplit(text).scheme,
    "getHost": lambda text: urlsplit(text).netloc,
    "getHostname": lambda text: urlsplit(text).hostname or "",
    "getPort": lambda text: str(urlsplit(text).port or ""),
    "getEscapedPath": lambda text: urlsplit(text).path,
    "find": _find,
    "findAll": lambda text, pattern: re.findall(pattern, text),
    "isSorted": _ordered,
    "indexOf": _index_of,
}
