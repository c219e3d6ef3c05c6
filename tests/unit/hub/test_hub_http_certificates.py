"""Many new certificates are one change for their load balancers, and none waits for a read that hangs."""

from __future__ import annotations

import asyncio
import base64
from typing import Any, cast

import pytest
from cryptography.exceptions import UnsupportedAlgorithm

from fairlead.api.kubernetes import Secret
from fairlead.api.meta import ObjectMeta
from fairlead.api.tcploadbalancer import CertificateRef
from fairlead.errors import NotFound
from fairlead.hub.intents import certificates as module
from fairlead.hub.intents.certificates import TenantCertificates
from fairlead.model.http import Certificate
from fairlead_demo.worlds.certificates import self_signed

NAMESPACE = "tenant-east"


class Secrets:
    """An API with a Secret of any name; those in ``held`` are answered when their event is set."""

    def __init__(self, *held: str) -> None:
        chain, key = self_signed("shop.example.com")
        self._data = {"tls.crt": base64.b64encode(chain).decode(), "tls.key": base64.b64encode(key).decode()}
        self.held = {name: asyncio.Event() for name in held}

    async def get(self, _resource: object, namespace: str, name: str) -> Secret:
        if name in self.held:
            await self.held[name].wait()
        return Secret(metadata=ObjectMeta(name=name, namespace=namespace), type="kubernetes.io/tls", data=self._data)


async def read(api: Secrets, *names: str, changes: int) -> list[frozenset[tuple[str, str]]]:
    """Ask for certificates and return the first so many changes; what is held is answered after the first."""
    queue: asyncio.Queue[frozenset[tuple[str, str]]] = asyncio.Queue()
    certificates = TenantCertificates(cast("Any", api), changed=queue.put_nowait)
    there, missing = certificates.get(NAMESPACE, [CertificateRef(name) for name in names])
    assert (there, set(missing)) == ({}, set(names))
    task = asyncio.create_task(certificates.run())
    try:
        async with asyncio.timeout(180):
            seen = [await queue.get()]
            for event in api.held.values():
                event.set()
            seen += [await queue.get() for _ in range(changes - 1)]
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    there, missing = certificates.get(NAMESPACE, [CertificateRef(name) for name in names])
    assert (set(there), missing) == (set(names), {})
    return seen


async def test_a_secret_that_the_library_cannot_stand_is_reported_and_the_others_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def certificate_of(name: str, secret: Secret) -> Certificate:
        if name == "bad":
            raise UnsupportedAlgorithm("Curve 1.3.132.0.6 is not supported")
        return translated(name, secret)

    translated = module.certificate_of
    monkeypatch.setattr(module, "certificate_of", certificate_of)
    changed: asyncio.Queue[object] = asyncio.Queue()
    certificates = TenantCertificates(cast("Any", Secrets()), changed=changed.put_nowait)
    names = [CertificateRef("bad"), CertificateRef("good")]
    certificates.get(NAMESPACE, names)
    task = asyncio.create_task(certificates.run())
    async with asyncio.timeout(180):
        while not certificates.get(NAMESPACE, names)[0]:
            await changed.get()
    there, missing = certificates.get(NAMESPACE, names)
    assert (set(there), missing) == ({"good"}, {"bad": "Secret bad cannot be read: UnsupportedAlgorithm"})
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_missing_objects_are_requested_at_a_limited_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, waited, enough = 0, 0, asyncio.Event()

    class Gone(Secrets):
        async def get(self, _resource: object, namespace: str, name: str) -> Secret:
            nonlocal asked
            asked += 1
            if asked == 3:
                enough.set()
            raise NotFound(f"There is no Secret {namespace}/{name}.")

    class Bucket:
        def __init__(self, *_limits: float) -> None: ...

        async def acquire(self) -> None:
            nonlocal waited
            waited += 1

    monkeypatch.setattr(module, "TokenBucket", Bucket)
    certificates = TenantCertificates(cast("Any", Gone()), changed=lambda _changed: None)
    certificates.get(NAMESPACE, [CertificateRef("gone")])
    task = asyncio.create_task(certificates.run())
    async with asyncio.timeout(180):
        await enough.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (asked, waited) == (3, 2)


async def test_certificates_that_are_read_together_are_one_change() -> None:
    names = [f"tls-{number}" for number in range(50)]
    assert await read(Secrets(), *names, changes=1) == [frozenset((NAMESPACE, name) for name in names)]


async def test_a_certificate_does_not_wait_for_a_read_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_GATHER_S", 0.01)
    seen = await read(Secrets("slow"), "slow", "a", "b", changes=2)
    assert seen == [frozenset({(NAMESPACE, "a"), (NAMESPACE, "b")}), frozenset({(NAMESPACE, "slow")})]


@pytest.mark.req("I-6")
async def test_a_hub_that_starts_waits_until_each_certificate_has_been_read() -> None:
    api, changed = Secrets("slow"), asyncio.Event()
    certificates = TenantCertificates(cast("Any", api), changed=lambda _changed: changed.set())
    assert not await certificates.wait_read(60), "nothing was asked for"
    certificates.get(NAMESPACE, [CertificateRef("fast"), CertificateRef("slow")])
    reader = asyncio.create_task(certificates.run())
    waiting = asyncio.create_task(certificates.wait_read(60))
    try:
        async with asyncio.timeout(180):
            await changed.wait()
            assert certificates.get(NAMESPACE, [CertificateRef("fast")])[1] == {}
            assert not waiting.done()
            api.held["slow"].set()
            assert await waiting
        assert certificates.get(NAMESPACE, [CertificateRef("slow")])[1] == {}
    finally:
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)


async def test_waits_for_missing_or_hanging_parts_are_limited() -> None:
    api = Secrets("hangs")
    certificates = TenantCertificates(cast("Any", api), changed=lambda _changed: None)
    certificates.get(NAMESPACE, [CertificateRef("hangs")])
    reader = asyncio.create_task(certificates.run())
    try:
        assert await certificates.wait_read(0.01)
    finally:
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)
    gone = TenantCertificates(cast("Any", Missing()), changed=lambda _changed: None)
    gone.get(NAMESPACE, [CertificateRef("missing")])
    reader = asyncio.create_task(gone.run())
    try:
        async with asyncio.timeout(180):
            assert await gone.wait_read(60)
    finally:
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)


class Missing:
    """An API without Secrets."""

    async def get(self, _resource: object, _namespace: str, name: str) -> Secret:
        raise NotFound(f"there is no Secret {name}")


async def test_a_certificate_that_is_used_no_more_is_held_no_more() -> None:
    certificates = TenantCertificates(cast("Any", Secrets()), changed=lambda _: None)
    certificates.get(NAMESPACE, [CertificateRef("left"), CertificateRef("used")])
    certificates.forget(NAMESPACE, ["left", "never-there"])
    assert set(certificates._known) == {(NAMESPACE, "used")}


async def test_a_missing_secret_is_requested_by_one_chain() -> None:
    reads: asyncio.Queue[str] = asyncio.Queue()

    class Counting(Missing):
        async def get(self, _resource: object, _namespace: str, name: str) -> Secret:
            reads.put_nowait(name)
            return await super().get(_resource, _namespace, name)

    certificates = TenantCertificates(cast("Any", Counting()), changed=lambda _: None)
    reader = asyncio.create_task(certificates.run())
    try:
        for number in range(50):
            certificates.get(NAMESPACE, [CertificateRef("missing", digest=f"version-{number}")])
            async with asyncio.timeout(180):
                await reads.get()
        await asyncio.sleep(1.0)
    finally:
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)
    # The pause doubles from a twentieth of a second; fifty chains would ask more than a hundred times.
    assert 1 <= reads.qsize() <= 10
