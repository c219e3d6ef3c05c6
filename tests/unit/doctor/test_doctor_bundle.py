"""A support bundle: its content, that only its owner can read it, and that a broken hub does not prevent it."""

from __future__ import annotations

import json
import stat
import tarfile
from pathlib import Path

import msgspec
import pytest
from doctor_facts import healthy, with_fields

from fairlead.doctor.bundle import LOG_BYTES, files_of, write_bundle
from fairlead.doctor.checks import examine
from fairlead.doctor.facts import ApiFacts, Facts

pytestmark = pytest.mark.req("OP-6")


def files(facts: Facts, **more: object) -> dict[str, str]:
    given: dict[str, object] = {"pages": {}, "logs": {}, "events": {}, "unread": (), **more}
    return files_of(facts, examine(facts), **given)  # type: ignore[arg-type]


def test_a_bundle_has_objects_findings_versions_events_and_logs() -> None:
    made = files(
        healthy(),
        pages={"metrics.txt": "fairlead_hub_leading 1.0\n"},
        logs={"envoy.log": "x" * (LOG_BYTES + 5)},
        events={"hub": [{"kind": "Event", "metadata": {"name": "e"}, "message": "Programmed"}]},
    )
    assert {
        "README.txt",
        "versions.json",
        "doctor.json",
        "machine.json",
        "proxy-machine.json",
        "unread.txt",
        "hub/events.yaml",
    } <= made.keys()
    assert {"hub/tcploadbalancers.fairlead.dev.yaml", "member/nodes.yaml", "pages/metrics.txt"} <= made.keys()
    assert "default.web" in made["hub/tcploadbalancers.fairlead.dev.yaml"]
    assert "Programmed" in made["hub/events.yaml"]
    assert json.loads(made["versions.json"])["hub"]["version"] == "v1.36.2"
    assert len(made["logs/envoy.log"]) == LOG_BYTES
    assert "openAPIV3Schema" not in made["hub/customresourcedefinitions.apiextensions.k8s.io.yaml"]
    assert made["unread.txt"].startswith("Everything")


def test_a_broken_hub_is_in_it_as_broken() -> None:
    facts = msgspec.structs.replace(
        healthy(), hub=ApiFacts(name="hub", server="https://hub", error="refused the connection")
    )
    made = files(facts, unread=["http://127.0.0.1:9090/metrics: refused"])
    assert made["unread.txt"].splitlines() == [
        "http://127.0.0.1:9090/metrics: refused",
        "hub https://hub: refused the connection",
    ]
    assert json.loads(made["doctor.json"])[0]["check"] == "unreachable"
    assert "member/nodes.yaml" in made


def test_what_may_not_be_read_is_named() -> None:
    facts = with_fields("hub", unread={"secrets": "you may not"})
    assert "hub (secrets) you may not" in files(facts)["unread.txt"]


def test_a_bundle_is_one_private_file(tmp_path: Path) -> None:
    path = tmp_path / "bundle.tar.gz"
    size = write_bundle(path, {"a/b.txt": "é"}, directory="fairlead-now", time_s=1)
    assert size == path.stat().st_size
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with tarfile.open(path) as archive:
        member = archive.extractfile("fairlead-now/a/b.txt")
        assert member is not None
        assert member.read().decode() == "é"
