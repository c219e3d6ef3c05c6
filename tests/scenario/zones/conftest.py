"""An API server for each test; see ``tests.scenario.any_api``."""

from __future__ import annotations

from tests.scenario.any_api import api_with_kinds as api
from tests.scenario.any_api import real

__all__ = ["api", "real"]
