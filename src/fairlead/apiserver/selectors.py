"""Label and field selectors of a request.

In: the text of ``labelSelector`` and ``fieldSelector``. Out: predicates over entries. Never looks anything up.
"""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.api.selectors import EVERYTHING, BadSelector, Selector, parse_selector
from fairlead.apiserver.failure import bad_request
from fairlead.apiserver.store.entry import BucketEntry

MAX_SELECTOR_CHARS = 8192


def parse_labels(text: str) -> Selector:
    """Parse a label selector; raises 400."""
    _check_length("labelSelector", text)
    if not text.strip():
        return EVERYTHING
    try:
        return parse_selector(text)
    except BadSelector as error:
        raise bad_request(f"unable to parse requirement: {error}") from error


def _check_length(name: str, text: str) -> None:
    if len(text) > MAX_SELECTOR_CHARS:
        raise bad_request(f"{name}: it has {len(text)} characters, where {MAX_SELECTOR_CHARS} are allowed")


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
    labels: Selector = EVERYTHING
    fields: tuple[FieldTerm, ...] = ()

    @property
    def everything(self) -> bool:
        """Return whether there is neither a label selector nor a field selector."""
        return not self.labels.requirements and not self.fields

    def matches(self, entry: BucketEntry) -> bool:
        """Return whether ``entry`` matches."""
        if self.namespace and entry.namespace != self.namespace:
            return False
        if not self.labels.matches(entry.labels):
            return False
        return all(term.matches(entry.text(term.path)) for term in self.fields)
