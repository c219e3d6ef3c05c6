"""The snapshot of xDS resources: what a crash at any moment leaves on disk."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fairlead.machine.snapshot import XdsSnapshot
from fairlead.providers.envoy.resources import EncodedResource, ResourceType, encoded_resource
from fairlead_demo.worlds.processes import wait_until

pytestmark = pytest.mark.req("P-4")

CLUSTER, ENDPOINTS, LISTENER = ResourceType.CLUSTER, ResourceType.ENDPOINTS, ResourceType.LISTENER
NAME = "TCPLoadBalancer/shop/web/TCP/80"


def resource(kind: ResourceType, name: str, content: bytes) -> EncodedResource:
    return encoded_resource(kind, name, content)


def loaded(path: Path) -> XdsSnapshot:
    snapshot = XdsSnapshot(path)
    snapshot.load()
    return snapshot


async def filled(path: Path) -> XdsSnapshot:
    snapshot = XdsSnapshot(path)
    for kind in (CLUSTER, ENDPOINTS, LISTENER):
        snapshot.put(kind, NAME, resource(kind, NAME, b"first"))
    await snapshot.flush()
    return snapshot


async def test_changes_survive(tmp_path: Path) -> None:
    path = tmp_path / "snapshot"
    snapshot = await filled(path)
    changed = resource(ENDPOINTS, NAME, b"second")
    snapshot.put(ENDPOINTS, NAME, changed)
    snapshot.remove(LISTENER, NAME)
    await snapshot.flush()
    again = loaded(path)
    assert again.of(ENDPOINTS) == {NAME: changed}
    assert again.of(LISTENER) == {}
    assert again.version(CLUSTER, NAME) == resource(CLUSTER, NAME, b"first").version
    assert path.stat().st_mode & 0o777 == 0o600


async def test_a_file_cut_off_anywhere_keeps_what_comes_before(tmp_path: Path) -> None:
    path = tmp_path / "snapshot"
    snapshot = await filled(path)
    before = path.stat().st_size
    snapshot.put(ENDPOINTS, NAME, resource(ENDPOINTS, NAME, b"second"))
    await snapshot.flush()
    whole = path.read_bytes()
    for end in range(before, len(whole)):
        path.write_bytes(whole[:end])
        assert loaded(path).version(ENDPOINTS, NAME) == resource(ENDPOINTS, NAME, b"first").version
    # What is written next is readable, too.
    path.write_bytes(whole[:-1])
    again = loaded(path)
    again.put(ENDPOINTS, NAME, resource(ENDPOINTS, NAME, b"third"))
    await again.flush()
    assert loaded(path).version(ENDPOINTS, NAME) == resource(ENDPOINTS, NAME, b"third").version


@pytest.mark.parametrize("content", [b"", b"damaged", b"\0" * 100])
async def test_a_file_that_is_not_a_snapshot_is_replaced(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "snapshot"
    path.write_bytes(content)
    assert loaded(path).size == 0
    snapshot = loaded(path)
    snapshot.put(CLUSTER, NAME, resource(CLUSTER, NAME, b"first"))
    await snapshot.flush()
    assert loaded(path).size == 1


async def test_a_flipped_bit_ends_the_reading(tmp_path: Path) -> None:
    path = tmp_path / "snapshot"
    await filled(path)
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    assert loaded(path).size == 2


async def test_outdated_records_are_compacted(tmp_path: Path) -> None:
    path = tmp_path / "snapshot"
    snapshot = await filled(path)
    for number in range(40):
        snapshot.put(ENDPOINTS, NAME, resource(ENDPOINTS, NAME, b"x" * 100_000 + str(number).encode()))
        await snapshot.flush()
    assert path.stat().st_size < 2_000_000
    assert loaded(path).version(ENDPOINTS, NAME) == resource(ENDPOINTS, NAME, b"x" * 100_000 + b"39").version


async def test_what_an_envoy_that_died_has_not_released_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "snapshot"
    snapshot = await filled(path)
    snapshot.remove(CLUSTER, NAME)
    snapshot.remove(LISTENER, NAME)
    await snapshot.flush()
    assert loaded(path).size == 0


async def test_a_failed_write_is_repeated(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "snapshot"
    snapshot = XdsSnapshot(path)
    snapshot.put(CLUSTER, NAME, resource(CLUSTER, NAME, b"first"))
    with pytest.raises(OSError, match="No such file"):
        await snapshot.flush()
    path.parent.mkdir()
    await snapshot.flush()
    assert loaded(path).size == 1


async def test_changes_are_written_behind_and_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "snapshot"
    snapshot = XdsSnapshot(path)
    running = asyncio.create_task(snapshot.run())
    snapshot.put(CLUSTER, NAME, resource(CLUSTER, NAME, b"first"))

    async def written() -> bool:
        return path.exists() and loaded(path).size == 1

    await wait_until(written, "the change is written")
    snapshot.put(LISTENER, NAME, resource(LISTENER, NAME, b"first"))
    running.cancel()
    await asyncio.wait({running})
    assert loaded(path).size == 2
