"""A limit of the streams of the page that are open at once, in all and of one viewer.

In: the viewer, once it is known who that is. Out: a seat, or 503 and 429 with the next step as plain text. Each stream
costs the hub its own copy of what changes and, with a token, connections to the API.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import contextmanager

from aiohttp import web

#: Streams of all viewers, those that are still signing in among them.
MAX_STREAMS = 256
#: Of one user of the API, or of one address where no token is asked for: so many tabs of a browser.
MAX_OF_ONE = 32
_RETRY = {"Retry-After": "10"}


class Seats:
    """The open streams of one page; ``headers`` go with a refusal."""

    def __init__(self, headers: Mapping[str, str] = {}) -> None:
        self._headers = {**headers, **_RETRY}
        self._all = 0
        self._of: Counter[str] = Counter()

    @contextmanager
    def take(self) -> Generator[None]:
        """Count a stream inside the block; raises 503 when too many are open."""
        if self._all >= MAX_STREAMS:
            text = f"{MAX_STREAMS} pages of this hub are open, which is all that it serves: close some, or try later\n"
            raise web.HTTPServiceUnavailable(text=text, headers=self._headers)
        self._all += 1
        try:
            yield
        finally:
            self._all -= 1

    @contextmanager
    def of(self, viewer: str) -> Generator[None]:
        """Count a stream of ``viewer`` inside the block; raises 429 when it has too many."""
        if self._of[viewer] >= MAX_OF_ONE:
            text = f"you have {MAX_OF_ONE} pages of this hub open, which is all that one viewer may have: close some\n"
            raise web.HTTPTooManyRequests(text=text, headers=self._headers)
        self._of[viewer] += 1
        try:
            yield
        finally:
            self._of[viewer] -= 1
            if not self._of[viewer]:
                del self._of[viewer]
