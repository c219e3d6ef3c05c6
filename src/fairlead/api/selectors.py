"""Label selectors, in Kubernetes' full grammar.

    a=b  a==b  a!=b  a in (x, y)  a notin (x, y)  a  !a  a>1  a<1       joined by commas, all must hold

In: text, ``matchLabels``, or a LabelSelector. Out: a ``Selector``, or ``BadSelector`` with a sentence that names the
place. As in Kubernetes ``!=`` and ``notin`` hold for objects without the label.
Source: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

import msgspec

Operator = Literal["in", "notin", "exists", "absent", ">", "<"]

#: Without anything for the blanks between: a pattern that may match them in two ways takes squared time on many.
_TOKEN = re.compile(r"[^\s!=,()<>]+|==|!=|[!=,()<>]")
_KEY_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_NUMBER = re.compile(r"-?[0-9]+")


class BadSelector(ValueError):
    """The text is not a valid label selector; the message says why."""


class Requirement(msgspec.Struct, frozen=True):
    """One term."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether ``labels`` satisfy this term."""
        value = labels.get(self.key)
        match self.operator:
            case "in":
                return value is not None and value in self.values
            case "notin":
                return value is None or value not in self.values
            case "exists":
                return value is not None
            case "absent":
                return value is None
            case ">" | "<":
                if value is None or not _NUMBER.fullmatch(value):
                    return False
                number, bound = int(value), int(next(iter(self.values)))
                return number > bound if self.operator == ">" else number < bound


class Selector(msgspec.Struct, frozen=True):
    """A conjunction of terms."""

    requirements: tuple[Requirement, ...]

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        """Return whether an object with ``labels`` is selected."""
        return all(requirement.matches(labels or {}) for requirement in self.requirements)


class _Expression(msgspec.Struct, frozen=True):
    key: str
    operator: str
    values: list[str] | None = None


class _LabelSelector(msgspec.Struct, frozen=True, rename="camel"):
    match_labels: dict[str, str] | None = None
    match_expressions: list[_Expression] | None = None


#: Selects every object.
EVERYTHING = Selector(())


def match_labels(labels: Mapping[str, str]) -> Selector:
    """Return the selector of objects that have all these labels; of every object when there are none."""
    return Selector(tuple(Requirement(key, "in", frozenset({value})) for key, value in labels.items()))


_OPERATORS: Mapping[object, Operator] = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "absent"}


def from_label_selector(fields: Mapping[str, object]) -> Selector:
    """Return the selector that an object's ``matchLabels`` and ``matchExpressions`` are; empty, it selects everything.

    Raises:
        BadSelector: an expression is not understood.
    """
    try:
        typed = msgspec.convert(fields, _LabelSelector)
    except msgspec.ValidationError as error:
        raise BadSelector(str(error)) from None
    requirements = list(match_labels(typed.match_labels or {}).requirements)
    for expression in typed.match_expressions or ():
        operator = _OPERATORS.get(expression.operator)
        if operator is None:
            raise BadSelector(
                f"operator {expression.operator!r} of {expression.key}: use In, NotIn, Exists or DoesNotExist"
            )
        if operator in {"in", "notin"} and not expression.values:
            raise BadSelector(f"operator {expression.operator} of {expression.key} needs values")
        requirements.append(Requirement(expression.key, operator, frozenset(expression.values or ())))
    return Selector(tuple(requirements))


def parse_selector(text: str) -> Selector:
    """Parse a selector that is not empty.

    Raises:
        BadSelector: says where.
    """
    # Long ones are rare, and a client that sends many must not fill our memory with them.
    return _parse_often(text) if len(text) <= _OFTEN_CHARS else _parse(text)


def _parse(text: str) -> Selector:
    tokens = _tokens(text)
    requirements: list[Requirement] = []
    while tokens:
        requirements.append(_requirement(tokens, text))
        if tokens:
            _expect(tokens, ",", text)
            if not tokens:
                raise BadSelector(f"{text!r} ends with a comma")
    return Selector(tuple(requirements))


_OFTEN_CHARS = 256
_parse_often = lru_cache(maxsize=16_384)(_parse)


def _tokens(text: str) -> list[str]:
    """Split into words and signs, last one first, so that the next one is popped from the end."""
    tokens = _TOKEN.findall(text)
    if not tokens:
        raise BadSelector("the selector is empty")
    return tokens[::-1]


def _requirement(tokens: list[str], text: str) -> Requirement:
    if tokens[-1] == "!":
        tokens.pop()
        return Requirement(_key(tokens, text), "absent")
    key = _key(tokens, text)
    if not tokens or tokens[-1] == ",":
        return Requirement(key, "exists")
    operator = tokens.pop()
    match operator:
        case "=" | "==":
            return Requirement(key, "in", frozenset({_value(tokens, text)}))
        case "!=":
            return Requirement(key, "notin", frozenset({_value(tokens, text)}))
        case ">" | "<":
            value = _value(tokens, text)
            if not _NUMBER.fullmatch(value):
                raise BadSelector(f"{value!r} after {key}{operator} is not a whole number")
            return Requirement(key, operator, frozenset({value}))
        case "in" | "notin":
            return Requirement(key, operator, _values(tokens, text))
        case _:
            raise BadSelector(f"{operator!r} after {key!r} is not an operator: use =, !=, in, notin, > or <")


def _key(tokens: list[str], text: str) -> str:
    key = tokens.pop() if tokens else ""
    prefix, slash, name = key.rpartition("/")
    legal = len(name) <= 63 and _NAME.fullmatch(name)
    if not legal or (slash and (len(prefix) > 253 or not _KEY_PREFIX.fullmatch(prefix))):
        raise BadSelector(f"{key!r} in {text!r} is not the key of a label" if key else f"{text!r} lacks a label key")
    return key


def _value(tokens: list[str], text: str) -> str:
    """Take one value; nothing at all is the empty value."""
    if not tokens or tokens[-1] in {",", ")"}:
        return ""
    value = tokens.pop()
    if len(value) > 63 or not _NAME.fullmatch(value):
        raise BadSelector(f"{value!r} in {text!r} is not the value of a label")
    return value


def _values(tokens: list[str], text: str) -> frozenset[str]:
    _expect(tokens, "(", text)
    values = {_value(tokens, text)}
    while tokens and tokens[-1] == ",":
        tokens.pop()
        values.add(_value(tokens, text))
    _expect(tokens, ")", text)
    return frozenset(values)


def _expect(tokens: list[str], sign: str, text: str) -> None:
    token = tokens.pop() if tokens else "the end"
    if token != sign:
        raise BadSelector(f"{text!r} has {token!r} where {sign!r} should be")
