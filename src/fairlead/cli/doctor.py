"""``fairlead doctor`` and ``fairlead collect``: faults with the command that fixes each, and a support bundle."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from fairlead import __version__
from fairlead.api.meta import JSONObject
from fairlead.api.tenant import TENANTS
from fairlead.cli.hub_reader import connect as connect_to
from fairlead.cli.options import Output
from fairlead.cli.output import VerbAnswer, emit, say
from fairlead.cli.run import ATTENTION, NOT_SERVING, OK
from fairlead.cli.tenant import check_output
from fairlead.cli.verbs import Where
from fairlead.doctor.bundle import (
    LOG_BYTES,
    Texts,
    files_of,
    logs_below,
    read_events,
    read_logs,
    read_pages,
    write_bundle,
)
from fairlead.doctor.checks import CHECKS, examine, scoped, verb_names
from fairlead.doctor.facts import ApiFacts, Facts, Finding, Severity, is_in_set, name_of
from fairlead.doctor.gather import (
    HUB,
    MEMBER,
    connect_all,
    gather,
    gather_machine,
    targets_of,
    with_endings,
    with_rights,
)
from fairlead.doctor.proxy_machine import gather_proxy_machine
from fairlead.model.in_words import counted
from fairlead.standalone.right_cluster import OWN_TENANT
from fairlead.status.formatting import columns


async def examined(
    where: Where,
    *,
    machine: bool,
    connect: bool,
    namespace: str,
    matches: Callable[[Mapping[str, str] | None], bool] | None,
) -> VerbAnswer:
    """Return what the checks find; ``matches`` says of labels whether faults of such an object are shown."""
    facts = await gather_facts(where, machine=machine, connect=connect)
    findings = every = examine(facts)
    unseen = not_looked_at(where, facts, connect=connect)
    if namespace or matches is not None:
        findings = scoped(facts, every, namespace=namespace, matches=matches)
    severities = {finding.severity for finding in findings}
    others = len(every) - len(findings)
    return VerbAnswer(
        {"checks": len(CHECKS), "notLookedAt": unseen, "otherFaults": others, "findings": findings},
        lambda: lines_of(findings, checks=len(CHECKS), not_looked_at=unseen, others=others),
        lambda: verb_names(findings),
        NOT_SERVING if Severity.ERROR in severities else ATTENTION if severities else OK,
    )


def not_looked_at(where: Where, facts: Facts, *, connect: bool) -> list[str]:
    """Return what no check looked at, each with the option for it."""
    looked_at = {
        "the hub (--kubeconfig)": where.hub is not None,
        "members (--member-kubeconfig)": facts.member is not None,
        "this machine (--machine)": facts.machine is not None,
        "connections to targets (--connect)": connect and where.hub is not None,
    }
    return [what for what, looked in looked_at.items() if not looked]


async def gather_facts(where: Where, *, machine: bool = False, connect: bool = False) -> Facts:
    """Read all that is asked for; with a data directory this machine, too.

    Raises:
        BadConfiguration: a kubeconfig is missing or broken.
    """

    async def side(name: str, given: tuple[Path | None, str] | None, at_hub: ApiFacts | None = None) -> ApiFacts | None:
        if given is None:
            return None
        async with connect_to(given[0], context=given[1], name=f"the {name}") as cluster:
            read = await gather(cluster, name, HUB if name == "hub" else MEMBER)
            cluster_set = is_in_set(Facts(version=__version__, hub=at_hub, member=read))
            read = await with_rights(cluster, read, cluster_set=cluster_set)
            return await with_endings(cluster, read)

    hub = await side("hub", where.hub)
    member = await side("member", where.member, hub)
    if member is None and hub is not None and OWN_TENANT in map(name_of, hub.list(TENANTS)):
        member = await side("member", where.hub, hub)  # one cluster is both
    files = [given[0] for given in (where.hub, where.member) if given is not None and given[0] is not None]
    return Facts(
        version=__version__,
        hub=hub,
        member=member,
        machine=gather_machine(where.data_dir, files) if machine or where.data_dir or where.proxy else None,
        proxy=await gather_proxy_machine(where.proxy) if where.proxy is not None else None,
        reach=await connect_all(targets_of(hub), timeout_s=3.0) if connect and hub is not None else (),
    )


def lines_of(
    findings: Sequence[Finding], *, checks: int, not_looked_at: Sequence[str], others: int = 0
) -> Iterator[str]:
    """Yield what is printed: three lines for each fault, and a summary that says what was not looked at.

    ``others`` counts the faults of objects that were not asked for.
    """
    for finding in findings:
        yield f"{finding.severity.value.upper()}  {finding.object}  ({finding.check})"
        yield f"  {finding.fault}"
        yield f"  fix: {finding.fix}"
    by_severity = [finding.severity.value for finding in findings]
    parts = [counted(by_severity.count(each), noun) for each, noun in _NOUNS.items() if each in by_severity]
    result = ", ".join(parts) or ("no fault in what was checked" if not_looked_at else "no faults")
    rest = f"; not checked: {', '.join(not_looked_at)}" if not_looked_at else ""
    elsewhere = f"; {counted(others, 'fault')} of other objects (without -n and -l)" if others else ""
    yield f"{counted(checks, 'check')}: {result}{elsewhere}{rest}."


_NOUNS = {"error": "error", "warning": "warning", "unknown": "unknown"}


def print_checks(output: Output) -> None:
    """Print the checks."""
    checks = [{"name": check.name, "question": check.question} for check in CHECKS]
    emit(
        output,
        checks,
        lines=lambda: columns(
            [("CHECK", "QUESTION"), *((check["name"], check["question"]) for check in checks)], indent=""
        ),
        names=lambda: [check["name"] for check in checks],
    )


async def collect_bundle(where: Where, path: Path, now: datetime, hub_url: str, logs: list[Path]) -> None:
    """Write a support bundle, and print what is in it."""
    check_output(path)
    facts = await gather_facts(where)
    events: dict[str, list[JSONObject]] = {}
    for side, given in ((facts.hub, where.hub), (facts.member, where.member)):
        if side is not None and given is not None and not side.error:
            async with connect_to(given[0], context=given[1], name=f"the {side.name}") as cluster:
                events[side.name] = await read_events(cluster)
    pages = await read_pages(hub_url) if hub_url else Texts()
    local = read_logs([*logs, *logs_below(where.data_dir)], last_bytes=LOG_BYTES)
    files = files_of(
        facts, examine(facts), pages=pages.texts, logs=local.texts, events=events, unread=[*pages.unread, *local.unread]
    )
    size = write_bundle(path, files, directory=f"fairlead-{now:%Y%m%dT%H%M%SZ}", time_s=int(now.timestamp()))
    say([f"{path}: {len(files)} files, {max(1, size >> 10)} KiB; read it before you send it on"])
    if local.texts:
        say([f"logs in it: {', '.join(sorted(local.texts))}"])
    missing = files["unread.txt"].splitlines()
    if not missing[0].startswith("Everything"):
        say([f"not in it: {line}" for line in missing])
