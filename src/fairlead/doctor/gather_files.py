"""Read what a bundle has beside objects: Events, the pages of a hub, and the logs of this machine.

In: a connection, a URL, a directory. Out: texts by name, and a sentence for each that could not be read. Never: a file
that is no log, or more of a log than its end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import aiohttp
import msgspec

from fairlead.api.kubernetes import EVENTS
from fairlead.api.meta import JSONObject
from fairlead.doctor.gather import KindToRead, read_objects
from fairlead.doctor.reading import mapping
from fairlead.kube.cluster import Cluster

#: What a hub serves for people and programs.
PAGES = ("/metrics", "/readyz", "/livez")
_TIMEOUT_S = 10.0
#: The logs that processes of Fairlead write into a data directory, and what its documentation calls others.
_OURS = re.compile(r"(?:[-\w.]+-)?(?:fairlead|standalone|run|hub|agent|regions|capi|apiserver|envoy)(?:-\w+)?\.log")


class Texts(msgspec.Struct):
    """Texts by name, and why others are missing."""

    texts: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    unread: list[str] = msgspec.field(default_factory=list[str])


async def read_events(cluster: Cluster) -> list[JSONObject]:
    """Return the Events of Fairlead's components; none where they may not be read, which the objects' read says too."""
    objects, _ = await read_objects(cluster, (KindToRead(EVENTS),))
    return [event for event in objects.get(EVENTS.full_name, []) if "fairlead" in _component(event)]


def _component(event: JSONObject) -> str:
    return f"{event.get('reportingComponent') or ''} {mapping(event.get('source')).get('component') or ''}"


async def read_pages(hub_url: str) -> Texts:
    """Return the pages of a running hub."""
    read = Texts()
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        for page in PAGES:
            url = f"{hub_url.rstrip('/')}{page}"
            try:
                async with session.get(url) as answer:
                    read.texts[f"{page.lstrip('/')}.txt"] = await answer.text()
            except (aiohttp.ClientError, aiohttp.InvalidURL, TimeoutError, UnicodeDecodeError) as error:
                read.unread.append(f"{url}: {error or type(error).__name__}")
    return read


def logs_below(data_dir: Path | None) -> list[Path]:
    """Return where the logs of a hub's data directory are; ``standalone``, and several Envoys, have theirs deeper."""
    if data_dir is None:
        return []
    return [data_dir, *sorted(file for file in data_dir.rglob("envoy.log") if file.parent != data_dir)]


def read_logs(paths: Iterable[Path], *, last_bytes: int) -> Texts:
    """Return the ends of log files, and of those in a directory whose names are of Fairlead's own processes.

    What else is a log in a directory may be another program's: it is named, and not read.
    """
    read = Texts()
    for path in paths:
        files = sorted(path.glob("*.log")) if path.is_dir() else [path]
        others = [file for file in files if path.is_dir() and not _OURS.fullmatch(file.name)]
        read.unread += [
            f"{file}: not known to be a log of Fairlead; to have it in the file: --log {file}" for file in others
        ]
        for file in files:
            if file in others:
                continue
            name = "-".join(file.absolute().parts[1:])
            try:
                with file.open("rb") as log:
                    log.seek(max(0, file.stat().st_size - last_bytes))
                    read.texts[name] = log.read(last_bytes).decode(errors="replace")
            except OSError as error:
                read.unread.append(f"{file}: {error.strerror}")
    return read
