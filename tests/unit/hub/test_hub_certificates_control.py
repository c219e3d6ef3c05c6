"""What becomes of a ManagedCertificate: issued, renewed, failed, refused; with an API and an authority over HTTP."""

from __future__ import annotations

import asyncio
import base64
from datetime import datetime, timedelta
from typing import Any

import certificates_world
import msgspec
import pytest
from certificates_world import HOST, NAME, NAMESPACE, World

from fairlead.api.hostname import HOSTNAMES
from fairlead.api.kubernetes import SECRETS
from fairlead.api.managedcertificate import (
    CERTIFICATE_ISSUERS,
    MANAGED_CERTIFICATES,
    CertificateIssuer,
    ManagedCertificate,
)
from fairlead.api.names import LABEL_CHALLENGE, SYSTEM_NAMESPACE
from fairlead.api.tenant import TENANTS
from fairlead.errors import NotFound
from fairlead.hub.certificates.control import is_current
from fairlead.translate.certificates import certificate_of, ending, first_ends
from fairlead_demo.worlds.acme_server import AcmeServer

world = certificates_world.world


@pytest.mark.req("K-53")
async def test_a_certificate_is_in_its_secret_and_its_life_in_the_status(world: World) -> None:
    await world.issuer()
    await world.ask(HOST)
    obj = await world.settle("Issued")
    assert is_current(obj)
    secret = await world.cluster.get(SECRETS, NAMESPACE, NAME)
    certificate = certificate_of(NAME, secret)
    assert secret.type == "kubernetes.io/tls"
    assert obj.status.digest == certificate.digest
    assert [each.name for each in secret.metadata.owner_references or ()] == [NAME]
    assert obj.status.order is None
    assert (await world.condition("Ready"))[:2] == ("True", "Issued")
    not_before, renew_at, not_after = (
        datetime.fromisoformat(text) for text in (obj.status.not_before, obj.status.renew_at, obj.status.not_after)
    )
    part = (renew_at - not_before) / (not_after - not_before)
    assert 0.6 < part <= 0.67
    assert ending([obj], world.clock.now()) == []
    (row,) = ending([obj], world.clock.now(), within=timedelta(days=100))
    assert (row.hosts, row.ends) == ((HOST,), not_after)
    assert first_ends([obj]) == {NAMESPACE: not_after}
    # Nothing is asked while nothing is due, by this process or the next.
    world.restart()
    assert (await world.step() or 0) > 3600
    assert world.authority.counts["newOrder"] == 1


async def test_a_certificate_is_renewed_at_two_thirds_of_its_life(world: World) -> None:
    await world.issuer()
    await world.ask(HOST)
    first = await world.settle("Issued")
    world.clock.jump(timedelta(days=61).total_seconds())
    second = first
    for _ in range(100):
        await world.step()
        second = await world.read()
        if second.status.digest != first.status.digest:
            break
    assert second.status.serial != first.status.serial
    assert world.authority.counts["issued"] == 2
    assert len(world.authority.replaced) == 1, "a renewal, which limits of the authority do not count"


async def test_a_secret_that_is_deleted_in_use_is_made_again(world: World) -> None:
    await world.issuer()
    await world.ask(HOST)
    first = await world.settle("Issued")
    await world.cluster.delete(SECRETS, NAMESPACE, NAME)
    for _ in range(100):
        await world.step()
        if (await world.read()).status.digest != first.status.digest:
            break
    assert (await world.cluster.get(SECRETS, NAMESPACE, NAME)).data


async def test_other_names_are_another_order_and_the_last_certificate_stays_until_then(world: World) -> None:
    await world.issuer()
    await world.ask(HOST)
    first = await world.settle("Issued")
    world.authority.faults.caa = {"more.example.com"}
    await world.ask(HOST, "more.example.com")
    failing = await world.settle("Failing")
    assert failing.status.digest == first.status.digest
    # The certificate of the earlier names is served: these names have none.
    assert (await world.condition("Ready"))[:2] == ("Unknown", "AuthorityRefused")
    status, reason, message = await world.condition("Stale")
    assert (status, reason) == ("True", "AuthorityRefused")
    assert "CAA record of the name forbids" in message


async def test_permanent_failures_are_retried_rarely_and_reported_once(world: World) -> None:
    await world.issuer()
    world.authority.faults.caa = {HOST}
    await world.ask(HOST)
    waits = []
    for failures in range(1, 5):
        waits.append(await world.step() or 0)
        obj = await world.read()
        assert obj.status.failures == failures
        # Until its time has come nothing is asked.
        await world.step()
        assert world.authority.counts["newOrder"] == failures
        world.clock.jump(waits[-1] + 1)
    assert waits == sorted(waits)
    assert waits[-1] > 4 * waits[0]
    since = {each.last_transition_time for each in (await world.read()).status.conditions or ()}
    assert len(since) == 1
    world.authority.faults.caa = set()
    assert (await world.settle("Issued")).status.failures == 0


@pytest.mark.req("K-53")
async def test_an_issuer_whose_server_is_another_one_is_asked_at_once(world: World) -> None:
    """What failed at a server that is gone says nothing of the next one: not for the certificate, nor its account."""
    world.authority.faults.down = True
    await world.issuer()
    await world.ask(HOST)
    for failures in (1, 2):
        again_s = await world.step() or 0
        obj = await world.read()
        assert (obj.status.state, obj.status.failures) == ("Failing", failures)
        world.clock.jump(again_s + 1)
    await world.step()
    # Not yet: it failed with this server.
    assert (await world.step() or 0) > 60
    # Other members and names at the issuer change nothing about its server.
    await world.issuer(tenants=["east"])
    assert (await world.step() or 0) > 60
    async with AcmeServer(where=lambda _host: ("127.0.0.1", 1)) as another:
        another.trusting = True
        await world.issuer(server=another.directory)
        another.faults.caa = {HOST}
        await world.settle("Failing")
        assert (await world.read()).status.failures == 1
        assert another.counts["newOrder"] == 1
        assert "CAA" in (await world.condition("Ready"))[2]
        another.faults.caa = set()
        await world.issuer(server=another.directory, solvers=["HTTP01", "DNS01"])
        assert (await world.settle("Issued")).status.tried_with == ""


@pytest.mark.req("X-6")
async def test_orders_are_retried_once_the_clock_is_right(world: World) -> None:
    """A machine that starts with a wrong clock refuses the authority's own certificate, too."""
    ahead = timedelta(days=3650)
    world.clock._start += ahead
    world.authority.faults.down = True
    await world.issuer()
    await world.ask(HOST)
    again_s = await world.step() or 0
    world.clock._start -= ahead
    world.clock.jump(again_s + 1)
    world.authority.faults.down = False
    await world.settle("Issued")


async def test_an_authority_that_is_away_is_asked_again_within_a_quarter_of_an_hour(world: World) -> None:
    world.authority.faults.down = True
    await world.issuer()
    await world.ask(HOST)
    for _ in range(8):
        again_s = await world.step() or 0
        assert again_s <= 900 * 1.2
        world.clock.jump(again_s + 1)
    since = {each.last_transition_time for each in (await world.read()).status.conditions or ()}
    assert len(since) == 1
    world.authority.faults.down = False
    await world.settle("Issued")
    assert world.authority.counts["newOrder"] == 1


@pytest.mark.parametrize("kind", ["serverInternal", "connection"])
async def test_an_order_that_is_over_is_not_asked_for_again(world: World, kind: str) -> None:
    world.authority.trusting = False
    await world.issuer()
    await world.ask(HOST)
    await world.settle("Ordering")
    world.authority.end_orders(kind)
    failing = await world.settle("Failing")
    assert failing.status.order is None
    world.authority.trusting = True
    world.clock.jump(3600)
    await world.settle("Issued")
    assert world.authority.counts["newOrder"] == 2


async def test_limits_are_kept_as_the_authority_asks(world: World) -> None:
    await world.issuer()
    world.authority.faults.rate_limited, world.authority.faults.retry_after_s = 1, 7200
    await world.ask(HOST)
    assert (await world.step() or 0) >= 7200
    assert "rate limit" in (await world.condition("Ready"))[2]


async def test_an_unanswered_challenge_is_not_offered_and_is_reported_later(world: World) -> None:
    world.authority.trusting = False
    await world.issuer()
    await world.ask(HOST, loadBalancers=["ingressclass.fairlead"])
    obj = await world.settle("Ordering")
    (challenge,) = obj.status.order.challenges
    assert (challenge.type, challenge.offered) == ("http-01", False)
    await world.step()
    assert "no load balancer of shop.example.com has an address yet" in (await world.condition("Ready"))[2]
    world.clock.jump(400)
    await world.settle("Failing")
    assert (await world.condition("Ready"))[1] == "ChallengeNotAnswered"
    assert world.authority.counts["validated"] == 0


async def test_a_killed_hub_goes_on_with_the_order_that_is_on_record(world: World) -> None:
    world.authority.trusting = False
    await world.issuer()
    await world.ask(HOST)
    before = await world.settle("Ordering")
    world.restart()
    await world.step()
    after = await world.read()
    assert after.status.order is not None
    assert after.status.order.url == before.status.order.url
    world.authority.forget_orders()
    world.authority.trusting = True
    await world.settle("Issued")
    assert world.authority.counts["newOrder"] == 2


async def test_a_hub_that_was_killed_after_the_secret_takes_it_over(world: World) -> None:
    await world.issuer()
    await world.ask(HOST)
    await world.step()
    recorded = (await world.read()).status.order
    assert recorded is not None
    done = await world.settle("Issued")
    # As if the process had ended before it wrote the status.
    order = msgspec.to_builtins(recorded)
    patch = {"status": {"state": "Ordering", "digest": "", "order": order}}
    await world.cluster.merge_patch(
        MANAGED_CERTIFICATES, NAMESPACE, NAME, patch, manager="fairlead-hub", subresource="status"
    )
    world.restart()
    again = await world.settle("Issued")
    assert again.status.digest == done.status.digest
    assert world.authority.counts["newOrder"] == 1


@pytest.mark.parametrize(
    ("spec", "reason"), [({"tenants": ["west"]}, "NotAllowed"), ({"domains": ["other.example"]}, "NotAllowed")]
)
async def test_an_issuer_is_for_its_members_and_names_only(world: World, spec: dict[str, Any], reason: str) -> None:
    await world.issuer(**spec)
    await world.ask(HOST)
    assert await world.step() is None
    assert (await world.condition("Ready"))[:2] == ("False", reason)
    assert world.authority.counts["newOrder"] == 0


async def test_an_issuer_that_is_not_there_is_named(world: World) -> None:
    await world.ask(HOST)
    await world.step()
    status, reason, message = await world.condition("Ready")
    assert (status, reason) == ("False", "NoSuchIssuer")
    assert "there is no CertificateIssuer test at the hub" in message


async def test_the_issuer_shows_its_account_or_why_there_is_none(world: World) -> None:
    await world.issuer()
    await world.refresh()
    assert await world.control._accounts.reconcile("test") is None
    issuer = await world.cluster.get(CERTIFICATE_ISSUERS, "", "test")
    assert issuer.status.account.startswith(world.authority.url)
    await world.cluster.apply(
        SECRETS,
        {
            "metadata": {"name": "acme-account-test", "namespace": SYSTEM_NAMESPACE},
            "data": {"tls.key": base64.b64encode(b"planted").decode()},
        },
        manager="operator",
        force=True,
    )
    world.restart()
    await world.refresh()
    assert await world.control._accounts.reconcile("test") is not None
    issuer = await world.cluster.get(CERTIFICATE_ISSUERS, "", "test")
    accepted, ready, *_ = issuer.status.conditions or []
    assert "ECDSA P-256" in accepted.message
    assert (ready.type, ready.status, ready.reason) == ("Ready", "False", accepted.reason)
    assert "planted" not in accepted.message


async def test_an_account_that_is_deactivated_is_reported_on_the_certificate(world: World) -> None:
    await world.issuer()
    await world.ask(HOST)
    await world.settle("Issued")
    world.authority.deactivate_accounts()
    world.clock.jump(timedelta(days=61).total_seconds())
    await world.settle("Failing")
    assert "deactivated" in (await world.condition("Stale"))[2]


async def test_deleted_objects_leave_no_work(world: World) -> None:
    with pytest.raises(NotFound):
        await world.read()
    assert await world.step() is None


async def test_a_name_with_another_owner_concerns_the_certificates_for_it_and_no_others(world: World) -> None:
    for name, host in (("a", "a.example.com"), ("b", "b.c.example.com"), ("star", "*.example.com"), ("o", "a.org")):
        await world.ask(host, name=name)
    await world.refresh()
    queue = next(each.queue for each in world.control.controllers() if each.name == "managedcertificate")

    async def concerned(name: str) -> list[str]:
        world.control.owner_changed(name)
        keys = [await queue.get() for _ in range(len(queue))]
        for key in keys:
            queue.done(key)
        return sorted(name for _, name in keys)

    assert await concerned("a.example.com") == ["a"]
    assert await concerned("*.example.com") == ["a", "b", "star"]
    assert await concerned("x.example.com") == []
    assert await concerned("") == ["a", "b", "o", "star"]


@pytest.mark.req("CORE-11")
@pytest.mark.parametrize("days", [61, 89, 4000])
async def test_a_clock_that_is_ahead_orders_once_and_is_reported(world: World, days: int) -> None:
    world.clock._start += timedelta(days=days)
    await world.issuer()
    await world.ask(HOST)
    await world.settle("Issued")
    for _ in range(5):
        again_s = await world.step()
        world.restart()
        assert again_s is not None
        assert again_s > 3600
        world.clock.jump(60.0)
    assert world.authority.counts["newOrder"] == 1
    status, reason, message = await world.condition("ClockSkewed")
    assert (status, reason) == ("True", "ClockSkew")
    assert f"{days} days" in message


async def run(world: World, *names: str, rounds: int) -> None:
    """Let the queue and the timers of these certificates run for so many seconds; a DNS server publishes Hostnames."""
    queue = next(each.queue for each in world.control.controllers() if each.name == "managedcertificate")
    due = dict.fromkeys(names, 0.0)
    for _ in range(rounds):
        woken = [await queue.get() for _ in range(len(queue))]
        for key in woken:
            queue.done(key)
            due[key[1]] = 0.0
        await world.refresh()
        for name in names:
            if due[name] <= world.clock.monotonic():
                again_s = await world.control.reconcile((NAMESPACE, name))
                due[name] = world.clock.monotonic() + (again_s if again_s is not None else 1e9)
        for there in await world.cluster.list(HOSTNAMES, SYSTEM_NAMESPACE, label_selector=LABEL_CHALLENGE):
            programmed = {
                "type": "Programmed",
                "status": "True",
                "reason": "Programmed",
                "message": "",
                "observedGeneration": there.metadata.generation,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
            body = {"status": {"conditions": [programmed]}}
            await world.cluster.merge_patch(HOSTNAMES, *there.key, body, subresource="status")
        world.clock.jump(1.0)
        await asyncio.sleep(0.02)


async def challenges(world: World) -> dict[str, list[str]]:
    """Return the texts of the Hostnames that prove names."""
    there = await world.cluster.list(HOSTNAMES, SYSTEM_NAMESPACE, label_selector=LABEL_CHALLENGE)
    return {each.spec.host: sorted(each.spec.texts) for each in there}


async def open_order(world: World, name: str, *proofs: tuple[str, str]) -> None:
    """Put an order on record that proves hosts by texts."""
    parts = [{"host": host, "type": "dns-01", "content": text} for host, text in proofs]
    order = {"url": f"https://authority/{name}", "started": "2026-01-01T00:00:00Z", "challenges": parts}
    body = {"status": {"order": order if parts else None}}
    await world.cluster.merge_patch(MANAGED_CERTIFICATES, NAMESPACE, name, body, subresource="status")


@pytest.mark.req("CORE-12")
async def test_orders_that_prove_one_name_share_its_texts_and_withdraw_their_own(world: World) -> None:
    for name, host in (("a", "example.com"), ("b", "*.example.com"), ("c", "example.com")):
        await world.ask(host, name=name)
        await open_order(world, name, (host, f"text-{name}"))
    await world.refresh()
    solvers = world.control._solvers
    for name in "abc":
        await solvers.prepare(await world.cluster.get(MANAGED_CERTIFICATES, NAMESPACE, name))
    assert await challenges(world) == {"_acme-challenge.example.com": ["text-a", "text-b", "text-c"]}
    await open_order(world, "b")
    await world.cluster.delete(MANAGED_CERTIFICATES, NAMESPACE, "c")
    await world.refresh()
    await solvers.withdraw()
    assert await challenges(world) == {"_acme-challenge.example.com": ["text-a"]}
    await open_order(world, "a")
    await world.refresh()
    await solvers.withdraw()
    assert await challenges(world) == {}


@pytest.mark.req("CORE-12")
async def test_two_certificates_for_one_star_are_issued_by_texts_at_one_name(world: World) -> None:
    """The authority looks a moment after it was asked, when the other order has begun, or ended."""
    star = "*.shop.example.com"
    await world.cluster.merge_patch(TENANTS, "", "east", {"spec": {"domains": ["shop.example.com"]}})
    world.authority.trusting, world.authority._texts = False, lambda host: published(world, host)
    world.authority.faults.slow_s = 0.2
    await world.issuer(solvers=["DNS01"])
    await world.ask(star, name="a")
    await world.ask(star, name="b")
    await run(world, "a", "b", rounds=200)
    there = await world.cluster.list(MANAGED_CERTIFICATES, NAMESPACE)
    assert [(each.metadata.name, each.status.state, each.status.failures) for each in there] == [
        ("a", "Issued", 0),
        ("b", "Issued", 0),
    ]
    assert world.authority.counts["newOrder"] == 2
    assert await challenges(world) == {}


async def published(world: World, host: str) -> list[str]:
    """Return the texts at a name as its DNS server answers them, which is what is written at once."""
    return (await challenges(world)).get(host, [])


@pytest.mark.req("CORE-13")
async def test_a_turn_is_passed_on_by_a_certificate_that_needs_none(world: World) -> None:
    await world.issuer()
    for name in "abcd":
        await world.ask(f"{name}.example.com", name=name)
    await world.refresh()
    reached, free = asyncio.Semaphore(0), asyncio.Event()

    async def slow(obj: ManagedCertificate, issuer: CertificateIssuer, now: datetime) -> float:
        del obj, issuer, now
        reached.release()
        await free.wait()
        return 1.0

    world.control._ask = slow
    working = [asyncio.create_task(world.control.reconcile((NAMESPACE, name))) for name in "ab"]
    await reached.acquire()
    await reached.acquire()
    for name in "cd":
        assert await world.control.reconcile((NAMESPACE, name)) is None
    await world.cluster.delete(MANAGED_CERTIFICATES, NAMESPACE, "c")
    await world.refresh()
    free.set()
    await asyncio.gather(*working)
    queue = next(each.queue for each in world.control.controllers() if each.name == "managedcertificate")
    woken: list[str] = []
    while len(queue):
        key = await queue.get()
        queue.done(key)
        woken.append(key[1])
        await world.control.reconcile(key)
    assert "d" in woken


@pytest.mark.req("CORE-18")
async def test_the_older_certificate_owns_a_secret_and_the_other_is_refused(world: World) -> None:
    await world.issuer()
    await world.ask("a.example.com", name="z-older", secretName="shop-tls")
    await run(world, "z-older", rounds=20)
    await world.ask("b.example.com", name="a-younger", secretName="shop-tls")
    await world.refresh()
    await run(world, "a-younger", "z-older", rounds=20)
    older = await world.cluster.get(MANAGED_CERTIFICATES, NAMESPACE, "z-older")
    younger = await world.cluster.get(MANAGED_CERTIFICATES, NAMESPACE, "a-younger")
    assert (older.status.state, younger.status.state) == ("Issued", "Pending")
    (ready,) = [each for each in younger.status.conditions or () if each.type == "Ready"]
    assert (ready.status, ready.reason) == ("False", "SecretTaken")
    assert "z-older" in ready.message
    assert world.authority.counts["newOrder"] == 1
    await world.cluster.delete(MANAGED_CERTIFICATES, NAMESPACE, "z-older")
    await world.refresh()
    await run(world, "a-younger", rounds=20)
    assert (await world.cluster.get(MANAGED_CERTIFICATES, NAMESPACE, "a-younger")).status.state == "Issued"


@pytest.mark.req("CORE-18")
async def test_a_secret_of_another_writer_is_not_overwritten(world: World) -> None:
    body = {"metadata": {"name": "theirs", "namespace": NAMESPACE}, "stringData": {"tls.key": "theirs"}}
    await world.cluster.apply(SECRETS, body, manager="kubectl")
    await world.issuer()
    await world.ask(HOST, secretName="theirs")
    await world.settle("Failing")
    status, reason, message = await world.condition("Ready")
    assert (status, reason) == ("False", "SecretTaken")
    assert f"{NAMESPACE}/theirs" in message
    assert world.authority.counts["newOrder"] == 0
    assert set((await world.cluster.get(SECRETS, NAMESPACE, "theirs")).data or ()) == {"tls.key"}
