"""What a driver is sent of a pod or a node port, from the record alone; and that a record stays small."""

from __future__ import annotations

import msgspec
import pytest

from fairlead.api.backendgroup import (
    BackendRecord,
    BackendRecordSpec,
    BackendRecordStatus,
    RecordListener,
    RecordLoadBalancer,
    RecordOrigin,
    RecordTarget,
)
from fairlead.api.kubernetes import NodeAddress
from fairlead.api.meta import ObjectMeta
from fairlead.ledger.records import facts_of, record_spec, spec_of, target_of
from fairlead.model.change import Action, Reason, TargetChange
from fairlead.model.desired import FrontendSpec, Listener, Target
from fairlead.model.keys import LoadBalancerKey, Protocol, TargetKey, backend_key

KEY = LoadBalancerKey("LoadBalancer", "shop", "lb")
HTTPS = Listener(443, Protocol.TCP, "https")
FRONTEND = FrontendSpec(KEY, "shop", (HTTPS,))
POD = RecordOrigin("Pod", "shop", "web-0", "uid-1", labels={"app": "web"}, phase="Running", node_name="n1")
SERVICE = RecordOrigin(
    "Service",
    "shop",
    "svc",
    "uid-2",
    node_name="n1",
    service_port=80,
    node_addresses=[NodeAddress("InternalIP", "10.0.0.1")],
)


def record(origin: RecordOrigin | None, port: int = 8080) -> BackendRecord:
    spec = BackendRecordSpec(
        RecordLoadBalancer("LoadBalancer", "shop", "lb", "webhook"),
        RecordListener(443, "TCP", "https"),
        RecordTarget("10.0.0.1", port, origin=origin),
        parameters={"weight": "2"},
    )
    meta = ObjectMeta(name="r", namespace="shop", uid="uid-r")
    return BackendRecord(meta, spec, BackendRecordStatus(generated_address="x", injected_info={"id": "7"}))


@pytest.mark.req("L-2", "L-26")
def test_facts_of_a_given_address() -> None:
    facts = facts_of(record(None))
    assert (facts.record_id, facts.generated_address, facts.origin) == ("uid-r", "x", {})
    assert (facts.injected_info, facts.parameters) == ({"id": "7"}, {"weight": "2"})


@pytest.mark.req("L-2")
def test_a_pod_in_the_words_of_the_driver_protocol() -> None:
    assert facts_of(record(POD)).origin == {
        "podBackend": {
            "pod": {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"namespace": "shop", "name": "web-0", "uid": "uid-1", "labels": {"app": "web"}},
                "spec": {"nodeName": "n1"},
                "status": {"phase": "Running", "podIP": "10.0.0.1"},
            },
            "port": {"port": 8080, "portNumber": 8080, "protocol": "TCP"},
        }
    }


@pytest.mark.req("L-2")
def test_a_node_port_in_the_words_of_the_driver_protocol() -> None:
    assert facts_of(record(SERVICE, 30200)).origin == {
        "serviceBackend": {
            "service": {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"namespace": "shop", "name": "svc", "uid": "uid-2", "labels": {}},
                "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30200, "protocol": "TCP"}]},
            },
            "port": {"port": 80, "portNumber": 80, "protocol": "TCP"},
            "nodeName": "n1",
            "nodeAddresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        }
    }


def test_what_an_address_is_made_from_adds_little_to_a_record() -> None:
    sizes = {each: len(msgspec.json.encode(record(origin))) for each, origin in (("", None), ("pod", POD))}
    assert sizes["pod"] - sizes[""] < 200


@pytest.mark.req("L-2")
def test_a_target_comes_back_as_it_was_recorded() -> None:
    wanted = Target(TargetKey("10.0.0.1", 8080), 3, True, ("a", "b"), (("weight", "2"),), "pod/shop/web-0")
    change = TargetChange(KEY, HTTPS.key, wanted, Action.REGISTER, Reason.NEW)
    spec = record_spec(FRONTEND, change, provider="webhook", info={}, epoch=1)
    assert target_of(BackendRecord(ObjectMeta(name="r", namespace="shop"), spec)) == wanted
    assert (spec.listener.name, spec.target.name, spec.target.origin) == ("https", "pod/web-0", None)
    of_http = msgspec.structs.replace(change, listener=backend_key("shop/web:80"))
    recorded = record_spec(FRONTEND, of_http, provider="webhook", info={}, epoch=1, origin=POD)
    assert (recorded.listener.backend, recorded.target.origin) == ("shop/web:80", POD)


@pytest.mark.req("L-2")
def test_a_load_balancer_comes_back_with_its_ports_and_without_the_backends_of_http() -> None:
    backend = msgspec.structs.replace(
        record(None), spec=msgspec.structs.replace(record(None).spec, listener=RecordListener(0, "TCP", "", "shop/web"))
    )
    remembered = spec_of([record(None), backend])
    assert (remembered.key, remembered.group, remembered.listeners) == (KEY, "shop", (HTTPS,))


@pytest.mark.parametrize(
    ("source", "name"), [("pod/shop/web-0", "pod/web-0"), ("static", ""), ("node/n1", ""), ("a/b/c/d", "a/c")]
)
def test_the_name_of_what_a_target_comes_from(source: str, name: str) -> None:
    change = TargetChange(KEY, HTTPS.key, Target(TargetKey("10.0.0.1", 80), source=source), Action.REGISTER, Reason.NEW)
    assert record_spec(FRONTEND, change, provider="webhook", info={}, epoch=1).target.name == name
