"""Which objects does a request mean? Label and field selectors.

In: the text of ``labelSelector`` and ``fieldSelector``. Out: predicates over entries. Never looks anything up.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from fairlead.apiserver.failure import bad_request
from fairlead.apiserver.objects import Obj, at
from fairlead.apiserver.store.entry import BucketEntry

_SET = re.compile(r"^\s*([^\s!=,()]+)\s+(in|notin)\s*\(([^()]*)\)\s*$")
_EQUAL = re.compile(r"^\s*([^\s!=,()]+)\s*(==|=|!=)\s*([^\s!=,()]*)\s*$")
_EXISTS = re.compile(r"^\s*(!?)\s*([^\s!=,()]+)\s*$")
_COMPARE = re.compile(r"^\s*([^\s!=,()<>]+)\s*([<>])\s*(-?\d+)\s*$")
_SPLIT = re.compile(r",(?![^()]*\))")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One term of a label selector; ``values`` are sorted nowhere: only membership counts."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: dict[str, str]) -> bool:
        """Say whether ``labels`` satisfy this term."""
        match self.operator:
            case "in":
                return labels.get(self.key) in self.values
            case "notin":
                return labels.get(self.key) not in self.values
            case "exists":
                return self.key in labels
            case "!":
                return self.key not in labels
            case _:
                text = labels.get(self.key, "")
                if not text.removeprefix("-").isdigit():
                    return False
                bound = int(next(iter(self.values)))
                return int(text) > bound if self.operator == ">" else int(text) < bound


def parse_labels(text: str) -> tuple[Requirement, ...]:
    """Parse a label selector; raises 400."""
    return tuple(_term(part) for part in _SPLIT.split(text)) if text.strip() else ()


def _term(part: str) -> Requirement:
    if match := _SET.match(part):
        values = frozenset(value.strip() for value in match.group(3).split(","))
        return Requirement(match.group(1), match.group(2), values)
    if match := _COMPARE.match(part):
        return Requirement(match.group(1), match.group(2), frozenset({match.group(3)}))
    if match := _EQUAL.match(part):
        return Requirement(match.group(1), "notin" if match.group(2) == "!=" else "in", frozenset({match.group(3)}))
    if match := _EXISTS.match(part):
        return Requirement(match.group(2), "!" if match.group(1) else "exists")
    raise bad_request(f"unable to parse requirement: {part.strip()!r} is not a label selector")


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """One term of a field selector."""

    path: tuple[str, ...]
    value: str
    equal: bool

    def matches(self, found: str) -> bool:
        """Say whether the field's text satisfies this term."""
        return (found == self.value) is self.equal


def parse_fields(text: str, allowed: frozenset[str]) -> tuple[FieldTerm, ...]:
    """Parse a field selector over the ``allowed`` fields; raises 400."""
    terms: list[FieldTerm] = []
    for part in (part for part in text.split(",") if part.strip()):
        match = re.match(r"^\s*([^=!]+?)\s*(==|=|!=)\s*(.*?)\s*$", part)
        if match is None:
            raise bad_request(f"invalid field selector {part!r}: expected <field>=<value> or <field>!=<value>")
        if match.group(1) not in allowed:
            raise bad_request(
                f'Unable to find field label "{match.group(1)}": field label not supported: {match.group(1)}'
            )
        terms.append(FieldTerm(tuple(match.group(1).split(".")), match.group(3), match.group(2) != "!="))
    return tuple(terms)


@dataclass(frozen=True, slots=True)
class Selection:
    """What a list or watch asks for; an empty one means everything."""

    namespace: str = ""
    labels: tuple[Requirement, ...] = ()
    fields: tuple[FieldTerm, ...] = ()

    @property
    def everything(self) -> bool:
        """Say whether only the namespace is filtered."""
        return not self.labels and not self.fields

    def matches(self, entry: BucketEntry) -> bool:
        """Say whether ``entry`` is selected."""
        if self.namespace and entry.namespace != self.namespace:
            return False
        if not all(term.matches(entry.labels) for term in self.labels):
            return False
        if not self.fields:
            return True
        obj: Obj | None = None
        for term in self.fields:
            if term.path == ("metadata", "name"):
                found = entry.name
            elif term.path == ("metadata", "namespace"):
                found = entry.namespace
            else:
                obj = obj if obj is not None else entry.obj()
                found = _text(at(obj, *term.path))
            if not term.matches(found):
                return False
        return True


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
