"""The namespaces that may attach: All, Same, None, or those of a label selector.

In: a selector of Gateway API, and the namespaces with their labels. Out: names of namespaces. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.api.gateway import NamespaceSelector
from fairlead.api.selectors import BadSelector, from_label_selector


def namespaces_allowed(
    selector: NamespaceSelector | None, *, default: str, own: str, namespaces: Mapping[str, Mapping[str, str]]
) -> frozenset[str] | None:
    """Return the namespaces that ``selector`` allows, None for all; ``own`` is that of the object that has it.

    Raises:
        BadSelector: says what is wrong.
    """
    kind = (selector.from_ if selector is not None else "") or default
    match kind:
        case "All":
            return None
        case "Same":
            return frozenset({own})
        case "None":
            return frozenset()
        case "Selector":
            if selector is None or selector.selector is None:
                raise BadSelector("namespaces.from is Selector, and namespaces.selector is not there")
            chosen = from_label_selector(selector.selector)
            return frozenset(name for name, labels in namespaces.items() if chosen.matches(labels))
        case _:
            raise BadSelector(f"namespaces.from is {kind!r}: use All, Same, Selector or None")
