"""The controller for Cluster API next to a hub, and as a process of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fairlead.errors import BadConfiguration
from fairlead.standalone.controllers import CapiSettings, spawn_capi


class Spawned:
    def __init__(self) -> None:
        self.tasks: dict[str, bool] = {}

    def spawn(self, name: str, _make: Any, *, restart: bool = False) -> None:
        self.tasks[name] = restart


def test_a_hub_restarts_the_api_when_it_ends():
    supervisor: Any = Spawned()
    spawn_capi(supervisor, Path("kubeconfig"), identity="one")
    assert supervisor.tasks == {"capi": True}


def test_bad_settings_are_an_error_before_anything_is_started():
    with pytest.raises(BadConfiguration, match="--workers is 0"):
        CapiSettings(workers=0).config()
