"""A loop in which waiting takes no time, and a quiet log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest
import structlog
from records_desk import Desk
from records_loop import VirtualLoop


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Tens of thousands of runs have nothing to log."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


@pytest.fixture
def virtual() -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    yield loop
    loop.close()
    asyncio.set_event_loop(None)


@pytest.fixture
def desk(virtual: VirtualLoop) -> Iterator[Desk]:
    desk = Desk(virtual)
    yield desk
    desk.stop()
