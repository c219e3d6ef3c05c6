"""The load balancers that a verb acts on: one object, a namespace, labels, or all of them.

In: KIND/NAME, -n and -l as they were typed, and an open connection to the hub. Out: references to objects at the hub.
Never: a guess between two members that both have such an object, where something is to be written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS, LOAD_BALANCER_ROUTES, HTTPLoadBalancer, LoadBalancerRoute
from fairlead.api.intent import IntentObject
from fairlead.api.kinds import INTENT_KINDS
from fairlead.api.names import ANNOTATION_ORIGIN, DEFAULT_CLASS, LABEL_POOL_SERVICE_SERVICE, did_you_mean, name_problem
from fairlead.api.poolservice import POOL_SERVICES
from fairlead.api.selectors import EVERYTHING as ALL
from fairlead.api.selectors import BadSelector, parse_selector
from fairlead.api.tcploadbalancer import Origin
from fairlead.errors import BadConfiguration, Forbidden, NotFound, NotServed
from fairlead.kube.cluster import Cluster
from fairlead.status.object_ref import ANY, CLASS, IN_MEMBERS, SERVICE, ObjectRef, kinds_text, parse_object_ref


class Selection(NamedTuple):
    """The requested objects; all of them when every field is empty. ``namespace`` counts only without ``ref``."""

    ref: ObjectRef | None = None
    namespace: str = ""
    selector: str = ""

    @property
    def filters(self) -> bool:
        """Return whether labels or a namespace leave something out."""
        return bool(self.selector or (self.namespace and self.ref is None))

    @property
    def title(self) -> str:
        """Return it as the object of a sentence."""
        where = f" in namespace {self.namespace}" if self.namespace and self.ref is None else ""
        what = self.ref.title if self.ref is not None else f"the load balancers{where}"
        return f"{what} with labels {self.selector}" if self.selector else what

    @property
    def nothing(self) -> NotFound:
        """Return the error for a selection that matches nothing."""
        parts = [f"is in namespace {self.namespace!r}"] if self.namespace and self.ref is None else []
        parts += [f"has the labels {self.selector!r} at the hub"] if self.selector else []
        of = f" of {self.ref.title}" if self.ref is not None else ""
        return NotFound(f"No load balancer{of} {' and '.join(parts)}; to list them: fairlead status -o name")


EVERYTHING = Selection()


def selection_of(subject: str, namespace: str, selector: str, *, sharing: bool = False) -> Selection:
    """Return what is meant; ``BadConfiguration`` for what could never be meant. ``sharing``: see the parser."""
    matcher(selector)
    if namespace and (problem := name_problem(namespace)):
        raise BadConfiguration(f"--namespace: {problem}")
    ref = parse_object_ref(subject, namespace, sharing=sharing) if subject else None
    return Selection(ref, namespace, selector)


def certain(selection: Selection, verb: str) -> Selection:
    """Return a selection for a verb that changes something: ``BadConfiguration`` where it could mean everything."""
    if selection.ref is None and not selection.selector:
        raise BadConfiguration(f"Name what to {verb}: KIND/NAME, as in svc/web, or several by their labels with -l")
    return selection


def matcher(selector: str) -> Callable[[Mapping[str, str] | None], bool]:
    """Return what says whether labels match -l; ``BadConfiguration`` with an example."""
    try:
        return (parse_selector(selector) if selector else ALL).matches
    except BadSelector as error:
        raise BadConfiguration(f"--selector: {error}; write it as in app=web,tier!=test") from error


def in_namespace(places: Iterable[str], namespace: str) -> bool:
    """Say whether what is called [MEMBER/]NAMESPACE/NAME is in a namespace; an empty one means all."""
    return not namespace or any(namespace in place.split("/")[:-1] for place in places)


def places_of(obj: IntentObject) -> list[str]:
    """Return all that a load balancer may be called, without kinds: itself, and the object of a member it is for."""
    places = [str(obj.key)]
    origin: Origin | None = getattr(getattr(obj, "spec", None), "origin", None)
    if origin is not None and origin.name:
        places.append(obj.annotation(ANNOTATION_ORIGIN) or f"{origin.namespace}/{origin.name}".strip("/"))
    return places


async def select(cluster: Cluster, selection: Selection) -> dict[ObjectRef, str]:
    """Return the load balancers and Hostnames that are meant, each with what it can be called on the command line.

    Raises:
        NotFound: there are none.
    """
    ref = selection.ref
    lists = await asyncio.gather(*(cluster.list(kind) for kind in INTENT_KINDS), return_exceptions=True)
    objects: dict[ObjectRef, IntentObject] = {}
    for kind, listed in zip(INTENT_KINDS, lists, strict=True):
        if isinstance(listed, NotServed):
            continue
        if isinstance(listed, BaseException):
            raise listed
        objects |= {ObjectRef(kind.kind, *obj.key): obj for obj in listed}
    if ref is None:
        chosen = {at_hub: at_hub.path for at_hub in objects}
    elif ref.kind == CLASS:
        of_class = [at_hub for at_hub, obj in objects.items() if (obj.class_name or DEFAULT_CLASS) == ref.name]
        chosen = {at_hub: at_hub.path for at_hub in of_class if at_hub.kind != "Hostname"}
        if not chosen:
            raise NotFound(f"No load balancer uses {ref.title}")
    elif ref.kind not in (ANY, *IN_MEMBERS):
        chosen = {ref: ref.path}
    else:
        chosen = await _for_members_object(cluster, ref, objects) or await _in_regions(cluster, ref, objects)
        if not chosen:
            raise NotFound(_not_here(ref, objects))
    if selection.filters:
        matches, namespace = matcher(selection.selector), "" if ref is not None else selection.namespace
        chosen = {
            at_hub: called
            for at_hub, called in chosen.items()
            if (obj := objects.get(at_hub)) is not None
            and matches(obj.metadata.labels)
            and in_namespace(places_of(obj), namespace)
        }
        if not chosen:
            raise selection.nothing
    return chosen


async def resolve_one(cluster: Cluster, ref: ObjectRef) -> ObjectRef:
    """Return the one that is meant; ``BadConfiguration`` lists them when several are called so."""
    if ref.kind not in (ANY, *IN_MEMBERS):
        return ref
    matching = await select(cluster, Selection(ref))
    if len(matching) > 1:
        listed = ", ".join(sorted(matching.values()))
        raise BadConfiguration(f"{ref.path} is ambiguous; name one of {listed}")
    return next(iter(matching))


async def _for_members_object(
    cluster: Cluster, ref: ObjectRef, objects: Mapping[ObjectRef, IntentObject]
) -> dict[ObjectRef, str]:
    """Return the load balancer of a Service or a Gateway, or those that the routes of an Ingress or a route are on."""
    if ref.kind == ANY:
        wanted = f"/{ref.name}"
        called = {
            at_hub: places_of(obj)[-1]
            for at_hub, obj in sorted(objects.items())
            if at_hub.kind != "Hostname" and any(f"/{place}".endswith(wanted) for place in places_of(obj))
        }
        names = list(called.values())
        return {
            at_hub: name if names.count(name) == 1 else _with_kind(at_hub, objects[at_hub])
            for at_hub, name in called.items()
        }
    kinds = ("TCPLoadBalancer",) if ref.kind == SERVICE else ("HTTPLoadBalancer",)
    chosen = {
        at_hub: _called(ref, obj)
        for at_hub, obj in sorted(objects.items())
        if at_hub.kind in kinds and _is_for(obj, ref)  # what an IngressClass became is for no Service
    }
    if ref.kind == "ListenerSet":
        # It shares the load balancer of its Gateway, which names listeners by their ListenerSet.
        of_set = f"{ref.namespace}/{ref.name}/"
        chosen |= {
            at_hub: _called(ref, obj)
            for at_hub, obj in sorted(objects.items())
            if isinstance(obj, HTTPLoadBalancer)
            and ref.member in ("", member_of(obj))
            and any(listener.name.startswith(of_set) for listener in obj.spec.listeners)
        }
    if ref.kind != SERVICE:
        for route in await cluster.list(LOAD_BALANCER_ROUTES):
            if _is_for(route, ref):
                at = ObjectRef(HTTP_LOAD_BALANCERS.kind, route.metadata.namespace, route.spec.load_balancer)
                chosen[at] = _called(ref, route)
    return chosen


async def _in_regions(
    cluster: Cluster, ref: ObjectRef, objects: Mapping[ObjectRef, IntentObject]
) -> dict[ObjectRef, str]:
    """Return the load balancers of a Service that has one in each region: those of its PoolServices."""
    namespace, _, name = ref.name.rpartition("/") if ref.kind == ANY else (ref.namespace, "", ref.name)
    if ref.member or "/" in namespace or ref.kind not in (ANY, SERVICE):
        return {}
    try:
        pool_services = await cluster.list(POOL_SERVICES, namespace)
    except (Forbidden, NotServed):
        return {}
    of_service = {service.key for service in pool_services if service.label(LABEL_POOL_SERVICE_SERVICE) == name}
    return {
        at_hub: at_hub.path
        for at_hub, obj in sorted(objects.items())
        if at_hub.kind == "TCPLoadBalancer"
        and obj.spec.origin.kind == POOL_SERVICES.kind  # pyright: ignore[reportAttributeAccessIssue]
        and (at_hub.namespace, obj.spec.origin.name) in of_service  # pyright: ignore[reportAttributeAccessIssue]
    }


def _is_for(obj: IntentObject | LoadBalancerRoute, ref: ObjectRef) -> bool:
    origin: Origin = obj.spec.origin  # pyright: ignore[reportAttributeAccessIssue]
    is_it = (origin.namespace, origin.name) == (ref.namespace, ref.name) and origin.kind in ("", ref.kind)
    return is_it and ref.member in ("", member_of(obj))


def _with_kind(ref: ObjectRef, obj: IntentObject) -> str:
    """Return what a load balancer can be called where another has the same name without a kind."""
    origin: Origin | None = getattr(getattr(obj, "spec", None), "origin", None)
    if origin is None or not origin.name or (origin.kind or SERVICE) not in IN_MEMBERS:
        return ref.path
    return ObjectRef(origin.kind or SERVICE, origin.namespace, origin.name, member_of(obj)).path


def member_of(obj: IntentObject | LoadBalancerRoute) -> str:
    """Return the member that an object at the hub is from."""
    return obj.annotation(ANNOTATION_ORIGIN).partition("/")[0]


def _called(ref: ObjectRef, obj: IntentObject | LoadBalancerRoute) -> str:
    return ref._replace(member=member_of(obj)).path


def _not_here(ref: ObjectRef, objects: Mapping[ObjectRef, IntentObject]) -> str:
    if ref.kind == ANY:
        hint = did_you_mean(ref.name, (place for obj in objects.values() for place in places_of(obj)), most=3)
        return (
            f"No load balancer is named {ref.name!r}.{hint} To list them: fairlead status -o name. "
            f"Other objects are named KIND/NAME: {kinds_text(sharing=True)}"
        )
    why = "is not of type LoadBalancer" if ref.kind == SERVICE else "does not have a class of Fairlead"
    refused = " refuses it (fairlead status says why) or" if ref.kind == SERVICE else ""
    return (
        f"No load balancer of {ref.title} found. The object does not exist, {why}, or its agent{refused} "
        f"has not exported it. In the member: fairlead explain {ref.argument} --kubeconfig MEMBER.kubeconfig"
    )
