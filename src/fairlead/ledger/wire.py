"""Between a BackendRecord and the model: what is written for a change, and what a record says.

In: records, or load balancers and changes. Out: the other. Everything that a provider needs to deregister a backend
is in its record, so that pod, group, node and load balancer may all be gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from fairlead.api.backendgroup import (
    BackendRecord,
    BackendRecordSpec,
    RecordListener,
    RecordLoadBalancer,
    RecordOrigin,
    RecordTarget,
)
from fairlead.api.meta import JSONObject
from fairlead.model.change import BackendFacts, TargetChange
from fairlead.model.desired import FrontendSpec, Listener, Owner, Target
from fairlead.model.keys import ListenerKey, LoadBalancerKey, Protocol, TargetKey


def load_balancer_of(record: BackendRecord) -> LoadBalancerKey:
    """Return the load balancer that a record is about."""
    spec = record.spec.load_balancer
    return LoadBalancerKey(spec.kind, spec.namespace, spec.name)


def listener_of(record: BackendRecord) -> ListenerKey:
    """Return the listener that a record is about."""
    listener = record.spec.listener
    return ListenerKey(Protocol(listener.protocol), listener.port, listener.backend)


def target_of(record: BackendRecord) -> Target:
    """Return the target as it was recorded."""
    spec = record.spec
    return Target(
        TargetKey(spec.target.address, spec.target.port),
        weight=spec.target.weight,
        draining=spec.target.draining,
        owners=tuple(sorted(spec.owners or ())),
        parameters=tuple(sorted((spec.parameters or {}).items())),
        source=spec.target.source,
    )


def spec_of(records: Sequence[BackendRecord]) -> FrontendSpec:
    """Return the load balancer as its records remember it, for when its own object is gone."""
    spec = records[0].spec.load_balancer
    listeners = {
        listener_of(record): Listener(
            record.spec.listener.port, Protocol(record.spec.listener.protocol), record.spec.listener.name
        )
        for record in records
        if not record.spec.listener.backend
    }
    return FrontendSpec(
        key=load_balancer_of(records[0]),
        group=spec.namespace,
        listeners=tuple(sorted(listeners.values(), key=lambda listener: (listener.port, listener.protocol))),
        parameters=dict(spec.parameters or {}),
        attributes=dict(spec.attributes or {}),
        owner=Owner(kind=spec.kind, namespace=spec.namespace, name=spec.name, uid=spec.uid),
        existing=spec.existing,
    )


def load_balancer_spec(spec: FrontendSpec, *, provider: str, info: Mapping[str, str]) -> RecordLoadBalancer:
    """Return what each record says of the load balancer itself."""
    return RecordLoadBalancer(
        spec.key.kind,
        spec.key.namespace,
        spec.key.name,
        provider,
        parameters=dict(spec.parameters),
        attributes=dict(spec.attributes),
        info=dict(info),
        existing=spec.existing,
        uid=spec.owner.uid,
    )


def record_spec(
    spec: FrontendSpec,
    change: TargetChange,
    *,
    provider: str,
    info: Mapping[str, str],
    epoch: int,
    origin: RecordOrigin | None = None,
) -> BackendRecordSpec:
    """Return what is to be recorded for one change."""
    target = change.target
    names = {listener.key: listener.name for listener in spec.listeners}
    return BackendRecordSpec(
        load_balancer=load_balancer_spec(spec, provider=provider, info=info),
        listener=RecordListener(
            change.listener.port,
            change.listener.protocol.value,
            names.get(change.listener, ""),
            change.listener.backend,
        ),
        target=RecordTarget(
            target.key.address,
            target.key.port,
            target.weight,
            target.source,
            target.draining,
            origin,
            _named(target.source),
        ),
        owners=list(target.owners),
        parameters=dict(target.parameters),
        epoch=epoch,
    )


def _named(source: str) -> str:
    kind, _, rest = source.partition("/")
    parts = rest.split("/")
    return f"{kind}/{parts[1]}" if len(parts) > 1 else ""


def facts_of(record: BackendRecord) -> BackendFacts:
    """Return the input of a provider in addition to the change."""
    return BackendFacts(
        record_id=record.metadata.uid,
        generated_address=record.status.generated_address,
        injected_info=record.status.injected_info or {},
        parameters=record.spec.parameters or {},
        origin=_origin(record.spec),
    )


def _origin(spec: BackendRecordSpec) -> Mapping[str, object]:
    """Return what an address is generated from, in the words of the driver protocol."""
    origin = spec.target.origin
    if origin is None:
        return {}
    meta = {"namespace": origin.namespace, "name": origin.name, "uid": origin.uid, "labels": origin.labels or {}}
    protocol = spec.listener.protocol
    if origin.kind == "Pod":
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": meta,
            "spec": {"nodeName": origin.node_name},
            "status": {"phase": origin.phase, "podIP": spec.target.address},
        }
        return {"podBackend": {"pod": pod, "port": _port(spec.target.port, protocol)}}
    ports = [{"port": origin.service_port, "nodePort": spec.target.port, "protocol": protocol}]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": meta,
        "spec": {"type": "NodePort", "ports": ports},
    }
    return {
        "serviceBackend": {
            "service": service,
            "port": _port(origin.service_port, protocol),
            "nodeName": origin.node_name,
            "nodeAddresses": msgspec.to_builtins(origin.node_addresses or []),
        }
    }


def _port(number: int, protocol: str) -> Mapping[str, object]:
    # portNumber is what the protocol called it first, and what drivers may still read.
    return {"port": number, "portNumber": number, "protocol": protocol}


def nulls(old: object, new: JSONObject) -> JSONObject:
    """Return a merge patch that leaves nothing of ``old`` behind: fields that are missing in ``new`` are null."""
    return _nulls(msgspec.to_builtins(old), new)


def _nulls(old: JSONObject, new: JSONObject) -> JSONObject:
    out: JSONObject = dict.fromkeys(old.keys() - new.keys())
    for key, value in new.items():
        before = old.get(key)
        out[key] = _nulls(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return out
