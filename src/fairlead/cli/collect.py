"""``fairlead collect``: all that a bug report needs, in one file without a secret in it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.doctor import DoctorDir, MemberContext, MemberKubeconfig, Where
from fairlead.cli.options import Context, Kubeconfig, Verbose
from fairlead.cli.run import run_async


def collect(
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where to write it; default: fairlead-TIME.tar.gz here."),
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    member_kubeconfig: MemberKubeconfig = None,
    member_context: MemberContext = "",
    data_dir: DoctorDir = None,
    hub_url: Annotated[
        str,
        typer.Option(
            "--hub-url", metavar="URL", help="A hub's --metrics, such as http://127.0.0.1:9090: its pages too."
        ),
    ] = "",
    log: Annotated[
        list[Path] | None,
        typer.Option(
            "--log",
            metavar="FILE|DIR",
            help="The end of this log too, or of Fairlead's logs in this directory; may be given several times.",
        ),
    ] = None,
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Gather what a bug report needs in one file: objects, Events, histories, metrics, logs, and what doctor says.

    Keys, tokens, passwords and the contents of Secrets are removed. It works with a broken hub too: what could not
    be read is listed in the file.
    """
    where = Where(
        kubeconfig, context, member_kubeconfig, member_context, data_dir, machine=data_dir is not None, connect=False
    )
    now = datetime.now(UTC)
    path = output or Path(f"fairlead-{now:%Y%m%dT%H%M%SZ}.tar.gz")
    run_async(lambda: _collect(where, path, now, hub_url, log or []))


async def _collect(where: Where, path: Path, now: datetime, hub_url: str, logs: list[Path]) -> None:
    from fairlead.api.meta import JSONObject
    from fairlead.cli.connect import connect
    from fairlead.cli.doctor import gather_facts
    from fairlead.cli.output import say
    from fairlead.cli.tenant_objects import check_output
    from fairlead.doctor.bundle import LOG_BYTES, files_of, write_bundle
    from fairlead.doctor.gather_files import Texts, logs_below, read_events, read_logs, read_pages
    from fairlead.doctor.table import examine

    check_output(path)
    facts = await gather_facts(where)
    events: dict[str, list[JSONObject]] = {}
    for side, given in ((facts.hub, where.hub), (facts.member, where.member)):
        if side is not None and given is not None and not side.error:
            async with connect(given[0], context=given[1], name=f"the {side.name}") as cluster:
                events[side.name] = await read_events(cluster)
    pages = await read_pages(hub_url) if hub_url else Texts()
    local = read_logs([*logs, *logs_below(where.data_dir)], last_bytes=LOG_BYTES)
    files = files_of(
        facts,
        examine(facts),
        pages=pages.texts,
        logs=local.texts,
        events=events,
        unread=[*pages.unread, *local.unread],
    )
    size = write_bundle(path, files, directory=f"fairlead-{now:%Y%m%dT%H%M%SZ}", time_s=int(now.timestamp()))
    say([f"{path}: {len(files)} files, {max(1, size >> 10)} KiB; read it before you send it on"])
    if local.texts:
        say([f"logs in it: {', '.join(sorted(local.texts))}"])
    missing = files["unread.txt"].splitlines()
    if not missing[0].startswith("Everything"):
        say([f"not in it: {line}" for line in missing])
