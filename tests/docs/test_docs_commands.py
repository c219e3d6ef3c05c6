"""Pages with commands are executed from their first line to their last one, as a reader would."""

from __future__ import annotations

import pytest

from tests.docs.docs_console import ROOT, Shell

pytestmark = [pytest.mark.envoy, pytest.mark.slow]


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def test_tutorial(shell: Shell) -> None:
    shell.play(page("tutorial.md"))


def test_debug_no_address(world: Shell) -> None:
    world.play(page("how-to/debug-no-address.md"))


def test_upgrade(world: Shell) -> None:
    world.play(page("how-to/upgrade.md"))


def test_address_pool(own_network: Shell) -> None:
    own_network.play(page("how-to/address-pool.md"))
