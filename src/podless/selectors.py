"""Label and field selectors of a request.

In: the text of ``labelSelector`` and ``fieldSelector``. Out: predicates over entries. Never looks anything up.
As in Kubernetes ``!=`` and ``notin`` hold for objects without the label.
Source: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from podless.failure import bad_request
from podless.store.entry import BucketEntry

MAX_SELECTOR_CHARS = 8192
#: Longer selectors are rare, and are not cached: a client that sends many must not fill the memory with them.
_CACHED_CHARS = 256
#: Blanks separate tokens; a pattern that could match them in two ways would take quadratic time.
_TOKEN = re.compile(r"[^\s!=,()<>]+|==|!=|[!=,()<>]")
_KEY_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_NUMBER = re.compile(r"-?[0-9]+")


@dataclass(frozen=True, slots=True)
class LabelTerm:
    """One requirement of a label selector: ``operator`` is in, notin, exists, absent, > or <."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether ``labels`` satisfy the requirement."""
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
            case _:
                return value is not None and self._compares(value)

    def _compares(self, value: str) -> bool:
        (bound,) = self.values
        if not _NUMBER.fullmatch(value):
            return False
        return int(value) > int(bound) if self.operator == ">" else int(value) < int(bound)


def parse_labels(text: str) -> tuple[LabelTerm, ...]:
    """Parse a label selector; raises 400."""
    _check_length("labelSelector", text)
    if not text.strip():
        return ()
    try:
        return _parse_cached(text) if len(text) <= _CACHED_CHARS else _LabelParser(text).terms()
    except ValueError as error:
        raise bad_request(f"unable to parse requirement: {error}") from error


class _LabelParser:
    """The tokens of one label selector, last one first, so that the next one is popped from the end."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _TOKEN.findall(text)[::-1]

    def terms(self) -> tuple[LabelTerm, ...]:
        """Return the requirements; raises ``ValueError`` with the place of an error."""
        terms = [self._term()]
        while self._tokens:
            self._expect(",")
            if not self._tokens:
                raise ValueError(f"{self._text!r} ends with a comma")
            terms.append(self._term())
        return tuple(terms)

    def _term(self) -> LabelTerm:
        if self._tokens and self._tokens[-1] == "!":
            self._tokens.pop()
            return LabelTerm(self._key(), "absent")
        key = self._key()
        if not self._tokens or self._tokens[-1] == ",":
            return LabelTerm(key, "exists")
        operator = self._tokens.pop()
        match operator:
            case "=" | "==":
                return LabelTerm(key, "in", frozenset({self._value()}))
            case "!=":
                return LabelTerm(key, "notin", frozenset({self._value()}))
            case ">" | "<":
                value = self._value()
                if not _NUMBER.fullmatch(value):
                    raise ValueError(f"{value!r} after {key}{operator} is not a whole number")
                return LabelTerm(key, operator, frozenset({value}))
            case "in" | "notin":
                return LabelTerm(key, operator, self._values())
            case _:
                raise ValueError(f"invalid operator {operator!r} after {key!r}: use =, !=, in, notin, > or <")

    def _key(self) -> str:
        key = self._tokens.pop() if self._tokens else ""
        prefix, slash, name = key.rpartition("/")
        legal = len(name) <= 63 and _NAME.fullmatch(name)
        if not legal or (slash and (len(prefix) > 253 or not _KEY_PREFIX.fullmatch(prefix))):
            raise ValueError(f"{key!r} in {self._text!r} is not a label key" if key else f"{self._text!r} lacks a key")
        return key

    def _value(self) -> str:
        if not self._tokens or self._tokens[-1] in {",", ")"}:
            return ""
        value = self._tokens.pop()
        if len(value) > 63 or not _NAME.fullmatch(value):
            raise ValueError(f"{value!r} in {self._text!r} is not a label value")
        return value

    def _values(self) -> frozenset[str]:
        self._expect("(")
        values = {self._value()}
        while self._tokens and self._tokens[-1] == ",":
            self._tokens.pop()
            values.add(self._value())
        self._expect(")")
        return frozenset(values)

    def _expect(self, sign: str) -> None:
        token = self._tokens.pop() if self._tokens else "the end"
        if token != sign:
            raise ValueError(f"{self._text!r} has {token!r} where {sign!r} should be")


@lru_cache(maxsize=16_384)
def _parse_cached(text: str) -> tuple[LabelTerm, ...]:
    return _LabelParser(text).terms()


def _check_length(name: str, text: str) -> None:
    if len(text) > MAX_SELECTOR_CHARS:
        raise bad_request(f"{name}: it has {len(text)} characters, where {MAX_SELECTOR_CHARS} are allowed")


def matches_labels(terms: tuple[LabelTerm, ...], labels: Mapping[str, str] | None) -> bool:
    """Return whether ``labels`` satisfy every requirement."""
    return all(term.matches(labels or {}) for term in terms)


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """One requirement of a field selector: ``path`` is (or with ``equal`` false is not) ``value``."""

    path: tuple[str, ...]
    value: str
    equal: bool

    def matches(self, text: str) -> bool:
        """Return whether the value of the field satisfies the requirement."""
        return (text == self.value) is self.equal


def parse_fields(text: str, allowed: frozenset[str]) -> tuple[FieldTerm, ...]:
    """Parse a field selector over the ``allowed`` fields; raises 400."""
    _check_length("fieldSelector", text)
    terms: list[FieldTerm] = []
    for part in (part for part in text.split(",") if part.strip()):
        field, equals, value = part.partition("=")
        unequal = field.endswith("!")
        field = field.removesuffix("!").strip()
        if not equals or not field:
            raise bad_request(f"invalid field selector {part!r}: expected <field>=<value> or <field>!=<value>")
        if field not in allowed:
            raise bad_request(f'Unable to find field label "{field}": field label not supported: {field}')
        value = value if unequal else value.removeprefix("=")
        terms.append(FieldTerm(tuple(field.split(".")), value.strip(), not unequal))
    return tuple(terms)


@dataclass(frozen=True, slots=True)
class Selection:
    """Namespace, label selector and field selector of a list or watch; empty ones match everything."""

    namespace: str = ""
    labels: tuple[LabelTerm, ...] = ()
    fields: tuple[FieldTerm, ...] = ()

    @property
    def everything(self) -> bool:
        """Return whether there is neither a label selector nor a field selector."""
        return not self.labels and not self.fields

    def matches(self, entry: BucketEntry) -> bool:
        """Return whether ``entry`` matches."""
        if self.namespace and entry.namespace != self.namespace:
            return False
        if not matches_labels(self.labels, entry.labels):
            return False
        return all(term.matches(entry.text(term.path)) for term in self.fields)
