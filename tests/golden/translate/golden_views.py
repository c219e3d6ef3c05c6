"""Views and translations as JSON: only what differs from the defaults, so that a golden file shows what matters.

In: ``<case>.in.json``, the fields of a view with its Kubernetes objects as an API server sends them. Out: frozen
values; and text of any value, the same on every call.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TypeVar, cast

import msgspec

from fairlead.api.intent import Allocation
from fairlead.model.condition import Condition
from fairlead.model.keys import ListenerKey, TargetKey
from fairlead.translate.view import Allocated, Decision, LoadBalancerDecision, MemberView

View = TypeVar("View")
#: A field of the files that is not in the view: why the allocator has nothing more.
_PROBLEM = "allocation_problem"


def read_view(path: Path, view_type: type[View]) -> View:
    """Return the view in ``path``; fails when the file has a field that is unknown, or has its default."""
    fields = json.loads(path.read_text())
    fields.pop(_PROBLEM, None)
    view = msgspec.json.decode(json.dumps(fields), type=view_type)
    assert fields == plain(view), f"{path.name}: leave out defaults and unknown fields\n{dump(view)}"
    return view


def allocated(path: Path) -> Callable[[MemberView], Allocated]:
    """Return an allocator that gives each view what it has, with the problem that ``path`` names."""
    problem = json.loads(path.read_text()).get(_PROBLEM)
    condition = msgspec.convert(problem, Condition) if problem is not None else None
    return lambda view: (view.allocation, condition)


def shown(decision: Decision) -> str:
    """Return a decision as JSON; what it repeats of the view is left out."""
    decision = msgspec.structs.replace(decision, allocation=Allocation())
    if isinstance(decision, LoadBalancerDecision):
        decision = msgspec.structs.replace(decision, view=None)
    return dump(decision)


def dump(value: object) -> str:
    """Return ``value`` as indented JSON."""
    return json.dumps(plain(value), indent=1, ensure_ascii=False) + "\n"


def plain(value: object) -> object:
    """Return ``value`` as lists and objects; sets are sorted, targets listed without repeating their keys."""
    if isinstance(value, msgspec.Struct):
        return {
            field.encode_name: plain(getattr(value, field.name))
            for field in msgspec.structs.fields(value)
            if field.required or getattr(value, field.name) != _default(field)
        }
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value)
        if any(isinstance(key, TargetKey) for key in items):
            return [plain(target) for target in sorted(items.values(), key=str)]
        return {_name(key): plain(item) for key, item in items.items()}
    if isinstance(value, AbstractSet):
        return sorted((plain(item) for item in cast("AbstractSet[object]", value)), key=str)
    if isinstance(value, ListenerKey) and not value.backend:
        return [value.protocol, value.port]
    if isinstance(value, list | tuple):
        return [plain(item) for item in cast("list[object]", value)]
    return value


def _default(field: msgspec.structs.FieldInfo) -> object:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


def _name(key: object) -> str:
    """Return the form in which a key is printed; (namespace, name) as "namespace/name"."""
    if type(key) is tuple:
        return "/".join(map(str, cast("tuple[object, ...]", key)))
    return str(key)
