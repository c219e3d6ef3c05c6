"""The rows of a plan: each change with its reason and, field by field, recorded, observed and wanted.

In: a load balancer with its plan. Out: rows, as ``fairlead plan -o json`` prints them and the page shows them.
Never: a row that the worker would not do; a row that a guard holds is marked. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec

from fairlead.api.meta import JSONMapping, JSONObject
from fairlead.model.change import Action, FrontendChange, Reason, TargetChange
from fairlead.model.desired import FrontendSpec, Shares, Target
from fairlead.sync.plan import PAUSED

if TYPE_CHECKING:
    from fairlead.hub.inspect.preview import Previewed
    from fairlead.translate.placement import Choice


class Field(msgspec.Struct, frozen=True):
    """One field that differs; empty where there is nothing, ``there`` None when it could not be read."""

    field: str
    ledger: str
    there: str | None
    wanted: str


class Row(msgspec.Struct, frozen=True):
    """One change. ``held_by`` names the guard (or Paused) that holds it, and then ``message`` says why."""

    action: str
    reason: str
    held_by: str = msgspec.field(name="heldBy")
    message: str
    listener: str
    target: str
    source: str
    fields: list[Field]


def rows_of(lb: Previewed) -> list[Row]:
    """Return the rows of one load balancer: itself first, what is held last."""
    rows = [_frontend(lb, lb.plan.frontend)] if lb.plan.frontend is not None else []
    if lb.next_machines is not None:
        rows.append(_machines(lb, lb.next_machines))
    if lb.held_frontend is not None:
        rows.append(_frontend(lb, lb.held_frontend, held_by=PAUSED))
    rows += [_target(lb, change) for change in lb.plan.changes]
    rows += [_target(lb, row.change, held_by=row.reason, message=row.message) for row in lb.plan.held]
    return rows


def fields_of(old: Mapping[str, str], observed: Mapping[str, str] | None, new: Mapping[str, str]) -> list[Field]:
    """Return the fields that differ between ``old`` and ``new``, ordered; ``observed`` None: it could not be read."""
    return [
        Field(name, old.get(name, ""), observed.get(name) if observed is not None else None, new.get(name, ""))
        for name in sorted({*old, *new})
        if old.get(name, "") != new.get(name, "")
    ]


def source_of(target: Target) -> str:
    """Return the object behind ``target`` as kind/namespace/name, kind/name for one without a namespace."""
    return "/".join(filter(None, target.source.split("/")[:3]))


def flat(value: Any, name: str = "") -> dict[str, str]:
    """Return the leaves of a spec by their path, in the spelling of our resources; what is empty is left out."""
    match value:
        case None | "" | False | [] | ():
            return {}
        case Mapping():
            out: dict[str, str] = {}
            for key, inner in cast("JSONMapping", value).items():
                # Names that users have chosen are not converted to camel case.
                own = key if name in ("parameters", "attributes") else _camel(key)
                out |= flat(inner, ".".join(filter(None, (name, own))))
            return out
        case list() | tuple():
            return {name: ", ".join(str(item) for item in cast("Sequence[Any]", value))}
        case _:
            return {name: "yes" if value is True else str(value)}


def held_message(lb: Previewed, held_by: str, message: str) -> str:
    """Return a guard's message; for a pause, the objects that are paused and how to resume them."""
    if held_by != PAUSED or not lb.paused:
        return message
    return "; ".join(f"{name} is paused, apply the held changes with: fairlead resume {name}" for name in lb.paused)


def _frontend(lb: Previewed, change: FrontendChange, *, held_by: str = "") -> Row:
    old, new = lb.side.recorded_spec, change.spec if change.action is Action.ENSURE else None
    message = held_message(lb, held_by, "") if held_by else ""
    return Row(
        change.action, change.reason, held_by, message, "", "", "", fields_of(_of_spec(old), None, _of_spec(new))
    )


def _machines(lb: Previewed, choice: Choice) -> Row:
    now = ", ".join(lb.machines)
    fields = [Field("machines", now, now, ", ".join(choice.machines))]
    return Row(Action.ENSURE, Reason.CHANGED, "", choice.problem, "", "", "", fields)


def _of_spec(spec: FrontendSpec | None) -> dict[str, str]:
    if spec is None:
        return {}
    body: JSONObject = msgspec.to_builtins(spec)
    listeners = {
        f"{listener['protocol']}/{listener['port']}": listener["name"] or "unnamed" for listener in body["listeners"]
    }
    # What serves requests has the private keys of certificates in it.
    for omitted in ("key", "group", "listeners", "owner", "l7", "shares", "backend_shares"):
        del body[omitted]
    return (
        flat(body)
        | {f"listeners.{name}": text for name, text in listeners.items()}
        | _of_members("members", spec.shares)
        | _of_requests(spec)
    )


def _of_members(name: str, shares: Shares | None) -> dict[str, str]:
    """Return the weight and tier of each member."""
    if shares is None:
        return {}
    members = {
        f"{name}.{member.name}": (f"weight {member.weight}, tier {member.tier}" if member.weight else "weight 0")
        + (", reported as unhealthy" if member.dark else "")
        for member in shares.localities
    }
    return members | {f"{name}.spillover": shares.spillover}


def _of_requests(spec: FrontendSpec) -> dict[str, str]:
    """Return what people compare of the part that serves requests; of certificates their digests."""
    if spec.l7 is None:
        return {}
    fields = {f"routes.{route.name}": f"rules: {len(route.rules)}" for route in spec.l7.routes}
    for name, shares in spec.backend_shares.items():
        fields |= _of_members(f"backends.{name}.members", shares)
    return fields | {f"certificates.{name}": each.digest for name, each in spec.l7.certificates.items()}


def _target(lb: Previewed, change: TargetChange, *, held_by: str = "", message: str = "") -> Row:
    fields = _target_fields(lb, change)
    place = (str(change.listener), str(change.key), source_of(change.target))
    return Row(change.action, change.reason, held_by, held_message(lb, held_by, message), *place, fields)


def _target_fields(lb: Previewed, change: TargetChange) -> list[Field]:
    registered = lb.side.recorded.get(change.listener, {}).get(change.key)
    old = registered.target if registered is not None else None
    if old is None and lb.served:
        # The ledger of the hub's own proxies is in its memory: here only what the action implies is known.
        if change.action is Action.UPDATE:
            return []
        if change.action is Action.DRAIN:
            old = msgspec.structs.replace(change.target, draining=False)
    new = None if change.action is Action.DEREGISTER else change.target
    if new is not None and change.action is Action.DRAIN:
        # A held drain, as a status lists it, has the target as it is served meanwhile.
        new = msgspec.structs.replace(new, draining=True)
    return fields_of(_of_target(old), _there(lb, change), _of_target(new))


def _of_target(target: Target | None) -> dict[str, str]:
    if target is None:
        return {}
    fields = {"weight": str(target.weight), "owners": ", ".join(target.owners)}
    fields["draining"] = "yes" if target.draining else "no"
    if target.locality:
        fields["member"] = target.locality
    return fields | {f"parameters.{name}": value for name, value in target.parameters if name != "weight"}


def _there(lb: Previewed, change: TargetChange) -> dict[str, str] | None:
    if lb.observed is None or lb.observed.targets is None:
        return None
    entries = {(entry.listener, entry.key): entry for entry in lb.observed.targets}
    entry = entries.get((change.listener, change.key))
    if entry is None:
        return {}
    return {"weight": str(entry.weight), "draining": "yes" if entry.draining else "no"}


def _camel(name: str) -> str:
    head, *rest = name.removesuffix("_s").split("_")
    return head + "".join(part.title() for part in rest) + ("Seconds" if name.endswith("_s") else "")
