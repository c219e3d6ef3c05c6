"""The content of a support bundle, and its packing.

In: what was read of clusters and machine. Out: files by name, without secrets, and one tar.gz of them. Never: a file
of the machine that is not a log or a page of Fairlead's own; what could not be read is in ``unread.txt``.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
import yaml

from fairlead.api.kubernetes import CRDS
from fairlead.api.meta import JSONObject
from fairlead.doctor.facts import ApiFacts, Facts
from fairlead.doctor.finding import Finding
from fairlead.doctor.reading import items, meta, name_of, spec
from fairlead.doctor.redact import redacted_object, redacted_text
from fairlead.runtime.private_file import write_private

#: Of a log the last part: enough for what has just happened, and a bundle that can be sent by mail.
LOG_BYTES = 1 << 20


def files_of(
    facts: Facts,
    findings: Sequence[Finding],
    *,
    pages: Mapping[str, str],
    logs: Mapping[str, str],
    events: Mapping[str, Sequence[JSONObject]],
    unread: Iterable[str],
) -> dict[str, str]:
    """Return the files of a bundle by name; ``pages`` are those that the hub serves, ``events`` are by side."""
    files = {"README.txt": _README, "versions.json": _json(_versions(facts)), "doctor.json": _json(findings)}
    missing = list(unread)
    for side in filter(None, (facts.hub, facts.member)):
        if side.error:
            missing.append(f"{side.name} {side.server}: {side.error}")
            continue
        missing += [f"{side.name} ({resource}) {sentence}" for resource, sentence in sorted(side.unread.items())]
        for resource, objects in sorted(side.objects.items()):
            files[f"{side.name}/{resource}.yaml"] = _yaml(
                map(_short, objects) if resource == CRDS.full_name else objects
            )
        files[f"{side.name}/events.yaml"] = _yaml(events.get(side.name, ()))
        files[f"{side.name}/rights-denied.json"] = _json(side.denied)
        files[f"{side.name}/endings.json"] = _json(side.endings)
    if facts.machine is not None:
        files["machine.json"] = _json(facts.machine)
    files |= {f"pages/{name}": text for name, text in pages.items()}
    files |= {f"logs/{name}": text[-LOG_BYTES:] for name, text in logs.items()}
    files["unread.txt"] = "".join(f"{line}\n" for line in missing) or "Everything that was asked for could be read.\n"
    return {name: redacted_text(text) for name, text in files.items()}


def write_bundle(path: Path, files: Mapping[str, str], *, directory: str, time_s: int) -> int:
    """Write the files as one tar.gz that only its owner may read; return its size in bytes."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in sorted(files.items()):
            content = text.encode()
            entry = tarfile.TarInfo(f"{directory}/{name}")
            entry.size, entry.mtime, entry.mode = len(content), time_s, 0o600
            archive.addfile(entry, io.BytesIO(content))
    write_private(path, packed.getvalue())
    return len(packed.getvalue())


def _versions(facts: Facts) -> JSONObject:
    def of(side: ApiFacts | None) -> JSONObject | None:
        return None if side is None else {"server": side.server, "version": side.version, "aheadSeconds": side.ahead_s}

    return {"fairlead": facts.version, "hub": of(facts.hub), "member": of(facts.member)}


def _short(crd: JSONObject) -> JSONObject:
    """Return a CustomResourceDefinition without its schemas, which this program's version says."""
    versions = [
        {key: each.get(key) for key in ("name", "served", "storage")} for each in items(spec(crd).get("versions"))
    ]
    return {**crd, "spec": {"versions": versions}}


def _yaml(objects: Iterable[JSONObject]) -> str:
    ordered = sorted(objects, key=lambda each: (str(meta(each, "namespace") or ""), name_of(each)))
    return yaml.safe_dump_all(map(redacted_object, ordered), sort_keys=False, explicit_start=True, width=10_000)


def _json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


_README = """\
A support bundle of Fairlead, made by `fairlead collect`.

versions.json   of this program and of the API servers
doctor.json     what `fairlead doctor` says
hub/, member/   objects as the API servers have them, Events, rights that are denied, ends of certificates and tokens;
                hub/configmaps.yaml has the stored histories of load balancers
pages/          metrics and readiness of the hub, where --hub-url was given and it was reached
logs/           logs of this machine, where there are any
unread.txt      what could not be read, and why

Keys, tokens, passwords, Secrets' contents and credentials in URLs have been removed; names, addresses and labels of
your objects are in it. Read it before you send it on.
"""
