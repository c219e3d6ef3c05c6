"""Effects are verified and drift is seen where the driver can list its backends."""

from __future__ import annotations

import pytest

from fairlead.model.change import Action, OutcomeStatus
from fairlead.providers.webhook.provider import WebhookProvider
from tests.unit.providers.webhook.scripted_driver import SUCC, ScriptedDriver, http_status, row, spec


@pytest.mark.req("L-10")
async def test_a_driver_that_does_nothing_is_found_out(webhook: WebhookProvider, scripted: ScriptedDriver) -> None:
    """Effects are verified where the driver can list them; what is there and not ours is reported, never named."""
    await webhook.ensure(spec(scripted.url, verify="true"))
    scripted.on("listBackends", SUCC | {"backends": ["10.0.0.1:8080", "10.9.9.9:1"]})
    outcomes = await webhook.apply([row(number=1), row(number=2), row(Action.DEREGISTER, number=3)])
    assert [outcome.status for outcome in outcomes] == [OutcomeStatus.DONE, OutcomeStatus.RETRY, OutcomeStatus.DONE]
    assert "answered Succ to ensureBackend for 10.0.0.2:8080" in outcomes[1].message
    assert "it is not there" in outcomes[1].message
    (lie,) = await webhook.apply([row(Action.DEREGISTER, number=1)])
    assert "still there" in lie.message
    assert len(scripted.asked("listBackends")) == 2
    assert not any("10.9.9.9" in str(body) for _, body in scripted.calls)
    observed = await webhook.observe(spec("").key)
    assert observed is not None
    assert "10.9.9.9:1" in observed.foreign


async def test_a_list_that_fails_makes_no_success(webhook: WebhookProvider, scripted: ScriptedDriver) -> None:
    await webhook.ensure(spec(scripted.url, verify="true"))
    scripted.on("listBackends", http_status(500))
    (outcome,) = await webhook.apply([row()])
    assert outcome.status is OutcomeStatus.RETRY
    assert "listBackends" in outcome.message


@pytest.mark.req("L-10")
async def test_drift_is_seen_where_the_driver_can_list(webhook: WebhookProvider, scripted: ScriptedDriver) -> None:
    """Weights and drained targets are not drift, and a process that has not seen everything reports none."""
    there: set[str] = set()
    scripted.on("ensureBackend", lambda body: there.add(body["backendAddr"]) or SUCC)
    scripted.on("deregisterBackend", lambda body: there.discard(body["backendAddr"]) or SUCC)
    scripted.on("listBackends", lambda _body: SUCC | {"backends": sorted(there)})
    listed = spec(scripted.url, verify="true")
    await webhook.ensure(listed)
    await webhook.apply([row(number=1, weight=7), row(number=2), row(number=3)])
    await webhook.apply([row(Action.UPDATE, number=2, draining=True)])
    seen = await webhook.observe(listed.key)
    assert seen is not None
    assert [(at.key.address, at.weight, at.draining) for at in seen.targets or ()] == [
        ("10.0.0.1", 7, False),
        ("10.0.0.2", 1, True),
        ("10.0.0.3", 1, False),
    ]
    there.remove("10.0.0.3:8080")
    there.add("theirs")
    seen = await webhook.observe(listed.key)
    assert seen is not None
    assert (seen.programmed, len(seen.targets or ()), seen.foreign) == (False, 2, ("theirs",))
    webhook.restore(listed, {"lbID": "lb-1"})
    seen = await webhook.observe(listed.key)
    assert seen is not None
    assert (seen.targets, seen.foreign) == (None, ())
