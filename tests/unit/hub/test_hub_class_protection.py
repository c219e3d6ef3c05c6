"""Which classes a change concerns, what uses a class, and what its conditions say; caches are filled by hand."""

from __future__ import annotations

import msgspec
import pytest
from hub_parts import intent_context

from fairlead.api.backendgroup import BackendRecord, BackendRecordSpec, RecordListener, RecordLoadBalancer, RecordTarget
from fairlead.api.meta import ObjectMeta
from fairlead.hub.validation import ClassProtection, _may_be_of, build_in_use
from fairlead.model.condition import ConditionReason
from fairlead.model.contract import Capabilities
from fairlead.testing.builders import lb_class


def record(provider: str = "memory", **parameters: str) -> BackendRecord:
    load_balancer = RecordLoadBalancer("TCPLoadBalancer", "tenant-east", "web", provider, parameters=parameters)
    spec = BackendRecordSpec(load_balancer, RecordListener(80, "TCP"), RecordTarget("10.0.0.1", 80))
    return BackendRecord(ObjectMeta(name="r", namespace="tenant-east", uid="r"), spec)


@pytest.fixture
def protection() -> ClassProtection:
    context = intent_context(pool=None, capabilities={"memory": Capabilities()})
    return ClassProtection(
        cluster=context.cluster,
        inventory=context.inventory,
        providers=context.providers,
        events=context.events,
        clock=context.clock,
        leading=lambda: True,
    )


def with_parameters(**parameters: str):
    load_balancer_class = lb_class()
    return msgspec.structs.replace(
        load_balancer_class,
        spec=msgspec.structs.replace(load_balancer_class.spec, provider="memory", parameters=parameters),
    )


def deleted(load_balancer_class):
    return msgspec.structs.replace(
        load_balancer_class,
        metadata=msgspec.structs.replace(load_balancer_class.metadata, deletion_timestamp="2030-01-01T00:00:00Z"),
    )


def test_a_record_is_of_a_class_with_its_provider_and_its_fixed_parameters():
    assert _may_be_of(record(socket="/a"), with_parameters(socket="/a"))
    assert not _may_be_of(record(socket="/b"), with_parameters(socket="/a"))
    assert not _may_be_of(record("haproxy"), with_parameters())
    assert _may_be_of(record(), with_parameters(**{"timeout.connect": "3s"}))


def test_in_use_counts_and_names_the_first():
    assert build_in_use(lb_class(), [], short="lbc").reason is ConditionReason.UNUSED
    assert build_in_use(lb_class(), ["a/b"], short="lbc").message == "used by a/b"
    assert build_in_use(lb_class(), ["b", "a"], short="lbc").message == "used by 2, first a"
    assert build_in_use(deleted(lb_class()), ["a"], short="lbc").message.startswith(
        "deleted, and kept until nothing uses it: "
    )


def test_a_record_whose_load_balancer_is_gone_uses_the_class(protection: ClassProtection):
    assert list(protection._users(with_parameters())) == []
    protection._inventory.records._store.put(record())
    (user,) = protection._users(with_parameters())
    assert user.startswith("BackendRecord ")


def test_a_class_of_a_provider_that_does_not_run_is_not_accepted(protection: ClassProtection):
    assert protection._accepted(with_parameters(), []).status
    load_balancer_class = with_parameters()
    other = msgspec.structs.replace(
        load_balancer_class, spec=msgspec.structs.replace(load_balancer_class.spec, provider="cloud")
    )
    refused = protection._accepted(other, [])
    assert refused.reason is ConditionReason.NO_SUCH_PROVIDER
    assert "does not run 'cloud'" in refused.message


async def test_neither_a_missing_class_nor_a_follower_writes(protection: ClassProtection):
    await protection.reconcile("missing")
    load_balancer_class = with_parameters()
    protection._inventory.classes._store.put(load_balancer_class)
    protection._leading = lambda: False
    await protection.reconcile(load_balancer_class.metadata.name)


def test_changes_reconcile_the_classes_that_they_concern(protection: ClassProtection):
    load_balancer_class = with_parameters()
    other = msgspec.structs.replace(load_balancer_class, metadata=ObjectMeta(name="edge"))
    protection._class_changed(other, None)
    assert len(protection.queue) == 0
    protection._class_changed(None, load_balancer_class)
    assert len(protection.queue) == 1
