"""The record of what is accepted: written by the leader only, whatever an earlier view has decided."""

from __future__ import annotations

import pytest
from hub_parts import intent_context

from fairlead.api.intent import Allocation
from fairlead.api.loadbalancer import LoadBalancer
from fairlead.api.meta import ObjectMeta
from fairlead.errors import Retry
from fairlead.hub.intents.backend_groups import LoadBalancerObjects
from fairlead.hub.intents.intent import IntentContext
from fairlead.hub.intents.loadbalancer import LastAccepted
from fairlead.hub.intents.member_intent import AcceptedStatus
from fairlead.hub.intents.tcp import TCPObjects
from fairlead.testing.builders import tcp, tcp_view
from fairlead.translate.member import decide_tcp


def last_accepted(context: IntentContext) -> LastAccepted:
    objects = LoadBalancerObjects(context.cluster, context.inventory)
    return LastAccepted(context.cluster, objects, lambda: False)


@pytest.mark.req("CORE-04")
async def test_a_term_that_has_ended_records_nothing():
    context = intent_context()  # without a server: a write would be Unreachable
    accepted = AcceptedStatus(context.cluster, TCPObjects(context.cluster, context.inventory), lambda: False)
    with pytest.raises(Retry) as failed:
        await accepted.allocate(tcp("web"), Allocation("192.0.2.1"))
    assert failed.value.reason == "NotLeading"
    load_balancer = LoadBalancer(metadata=ObjectMeta(name="shared", namespace="shop"))
    with pytest.raises(Retry) as failed:
        await last_accepted(context).accept(load_balancer, Allocation("192.0.2.1"), None)
    assert failed.value.reason == "NotLeading"


@pytest.mark.req("CORE-04")
async def test_a_term_that_has_ended_writes_neither_finalizer_nor_frontend():
    context = intent_context()
    accepted = AcceptedStatus(context.cluster, TCPObjects(context.cluster, context.inventory), lambda: False)
    desired = decide_tcp(tcp_view(tcp("web")))
    assert desired.desired is not None
    load_balancer = LoadBalancer(metadata=ObjectMeta(name="shared", namespace="shop"))
    for write in (
        accepted.accept(tcp("web"), desired, Allocation()),
        accepted.forget_frontend(tcp("web"), "haproxy"),
        last_accepted(context).hold(load_balancer),
    ):
        with pytest.raises(Retry) as failed:
            await write
        assert failed.value.reason == "NotLeading"
