"""Which parts of a status are compared: ours, whatever their order, and none of others."""

from __future__ import annotations

from fairlead.agent.sources.gateway.status import of_ours
from fairlead.api.gateway import GatewayStatus, ListenerStatus
from fairlead.api.meta import WireCondition


def status(*conditions: WireCondition, attached: int = 1) -> GatewayStatus:
    listeners = [ListenerStatus(name, attached, [], list(conditions)) for name in ("http", "https")]
    return GatewayStatus(conditions=list(conditions), listeners=listeners)


ACCEPTED = WireCondition(type="Accepted", status="True", reason="Accepted")
PROGRAMMED = WireCondition(type="Programmed", status="True", reason="Programmed")
FOREIGN = WireCondition(type="example.com/Checked", status="True", reason="Checked")


def test_order_and_conditions_of_others_are_not_a_difference():
    assert of_ours(status(PROGRAMMED, FOREIGN, ACCEPTED)) == of_ours(status(ACCEPTED, PROGRAMMED))


def test_own_fields_are_a_difference():
    assert of_ours(status(ACCEPTED)) != of_ours(status(ACCEPTED, PROGRAMMED))
    assert of_ours(status(ACCEPTED, attached=0)) != of_ours(status(ACCEPTED))
