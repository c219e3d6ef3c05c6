"""The state directory of a proxy machine: who may use it, and what a damaged one is."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fairlead.errors import BadConfiguration
from fairlead.machine import state as state_module
from fairlead.machine.state import NewKey, StateDirectory
from fairlead.model.machine import EnrolAnswer, MachinePlan
from tests.unit.machine.machine_authority import Authority


def joined(path: Path) -> StateDirectory:
    path.mkdir()
    state, key = StateDirectory(path), NewKey("m1")
    authority = Authority()
    answer = EnrolAnswer(
        machine="m1", certificate=authority.sign(key.csr), ca=authority.ca, xds="hub:2", renew_after_s=60.0
    )
    state.store(answer, key, hubs=("hub:1",), now=1000.0)
    return state


@pytest.mark.req("P-1")
def test_a_machine_that_has_joined_can_be_started(tmp_path: Path) -> None:
    state = joined(tmp_path / "state")
    enrolment = state.load()
    assert (enrolment.machine, enrolment.hubs, enrolment.renew_at) == ("m1", ("hub:1",), 1060.0)
    state.tls()
    state.channel_credentials()
    assert state.certificate_expires() > datetime.now(UTC)
    modes = {path.stat().st_mode & 0o077 for path in state.path.iterdir() if path.name != "lock"}
    assert modes == {0}


@pytest.mark.req("P-1")
def test_a_machine_that_has_not_joined_gets_the_command(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "state")
    with pytest.raises(BadConfiguration, match="fairlead proxy token"):
        state.load()


@pytest.mark.req("P-1")
@pytest.mark.parametrize("differs", ["_machine_id", "_host_name"])
def test_a_copied_state_directory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, differs: str) -> None:
    state = joined(tmp_path / "state")
    monkeypatch.setattr(state_module, differs, lambda: "another")
    with pytest.raises(BadConfiguration, match=r"m1.*token"):
        state.load()


def test_the_process_that_has_the_directory_is_known(tmp_path: Path) -> None:
    state = joined(tmp_path / "state")
    assert state.running_pid() == 0
    state.take()
    assert state.running_pid() == os.getpid()
    state.release()
    assert state.running_pid() == 0


def test_two_processes_do_not_share_a_state_directory(tmp_path: Path) -> None:
    first, second = StateDirectory(tmp_path / "state"), StateDirectory(tmp_path / "state")
    first.take()
    with pytest.raises(BadConfiguration, match="another fairlead proxy"):
        second.take()
    first.release()
    second.take()
    second.release()


def test_a_certificate_of_another_key_is_refused(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path)
    authority = Authority()
    for certificate in (authority.sign(NewKey("m2").csr), "nonsense"):
        answer = EnrolAnswer(machine="m1", certificate=certificate, ca=authority.ca, xds="")
        with pytest.raises(BadConfiguration, match="certificate"):
            state.store(answer, NewKey("m1"), hubs=(), now=0.0)
    assert not state.has_joined


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:20])


@pytest.mark.parametrize(
    ("name", "spoil"), [("machine.json", _truncate), ("identity.pem", _truncate), ("ca.pem", os.unlink)]
)
def test_damaged_files_are_named(tmp_path: Path, name: str, spoil: Callable[[Path], object]) -> None:
    state = joined(tmp_path / "state")
    spoil(state.path / name)

    def start() -> None:
        state.load()
        state.tls()

    with pytest.raises(BadConfiguration, match="state"):
        start()


@pytest.mark.req("P-4")
def test_the_last_plan_is_kept_with_its_age(tmp_path: Path) -> None:
    state = joined(tmp_path / "state")
    assert state.load_plan() is None
    assert state.last_answer() is None
    plan = MachinePlan(machine="m1", version="7")
    state.store_plan(plan)
    assert StateDirectory(state.path).load_plan() == plan
    os.utime(state.path / "plan.json", (1.0, 1.0))
    last = state.last_answer()
    assert last is not None
    assert last.timestamp() == 1.0
    state.hub_answered()
    assert (state.last_answer() or last).timestamp() > 1.0


@pytest.mark.req("P-2")
def test_authorities_are_replaced_by_authorities_only(tmp_path: Path) -> None:
    state = joined(tmp_path / "state")
    before = (state.path / "ca.pem").read_text()
    assert not state.store_authorities(before)
    with pytest.raises(BadConfiguration):
        state.store_authorities("nonsense")
    assert (state.path / "ca.pem").read_text() == before
    assert state.store_authorities(Authority().ca + before)
    state.tls()
