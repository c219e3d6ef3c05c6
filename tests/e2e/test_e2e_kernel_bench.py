"""The comparison of the kernel data path with Envoy and HAProxy measures all three, here for a moment each."""

from __future__ import annotations

import shutil

import pytest

from bench import kernelpath
from fairlead_demo.worlds.proxy_machines import why_no_namespaces

pytestmark = [pytest.mark.envoy, pytest.mark.slow]


@pytest.mark.req("P-36")
async def test_each_data_path_has_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    if why := why_no_namespaces():
        pytest.skip(why)
    if not all(map(shutil.which, ("nft", "conntrack", "haproxy"))):
        pytest.skip("nft, conntrack or haproxy is missing: .ci/nftables and .ci/haproxy install them")
    for name, value in (("ROUNDS", 1), ("SECONDS", 0.2), ("IDLE", 20), ("SERVICES", 50)):
        monkeypatch.setattr(kernelpath, name, value)
    figures = {figure.name: figure.value async for figure in kernelpath.measured()}
    for path in ("kernel", "Envoy", "HAProxy"):
        of_path = {name for name in figures if name.startswith(f"kernelpath, {path}: ")}
        for what in ("new connections a second", "p50", "p99", "throughput", "memory"):
            assert any(what in name for name in of_path), (path, what)
        assert figures[f"kernelpath, {path}: new connections a second"] > 0
    assert any("50 Services x 3 targets, programmed" in name for name in figures)
