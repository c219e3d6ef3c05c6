"""One living process has a name: the same one after a restart, never the same on two machines."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from fairlead.errors import BadConfiguration
from fairlead.standalone.process import claim_for, claim_identity, kept_identity, state_dir

HOLD = """
import sys, time
from pathlib import Path
from fairlead.standalone.process import claim_identity
claim = claim_identity(Path(sys.argv[1]))
print(claim.identity, claim.lock is not None, flush=True)
time.sleep(600)
"""


@pytest.mark.req("I-5")
async def test_a_killed_process_leaves_its_name_to_the_next_one_and_a_living_one_does_not(tmp_path: Path) -> None:
    path = tmp_path / "state" / "agent.lock"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLD, str(path), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    name, locked = (await process.stdout.readline()).decode().split()
    assert locked == "True"
    beside = claim_identity(path)
    assert beside.lock is None
    assert beside.identity != name
    process.kill()
    await process.wait()
    after = claim_identity(path)
    assert after.identity == name
    assert after.lock is not None
    after.lock.close()


@pytest.mark.req("I-5")
def test_a_name_of_an_earlier_start_of_the_machine_is_not_used_again(tmp_path: Path) -> None:
    path = tmp_path / "agent.lock"
    path.write_text("copied-disk-0000 another-boot\n")
    claim = claim_identity(path)
    assert claim.identity != "copied-disk-0000"
    assert claim.lock is not None
    claim.lock.close()
    again = claim_identity(path)
    assert again.identity == claim.identity
    assert again.lock is not None
    again.lock.close()


def test_each_role_at_each_api_has_a_name_of_its_own(tmp_path: Path) -> None:
    with (
        claim_for("agent-east", "https://a", data_dir=tmp_path) as first,
        claim_for("agent-east", "https://b", data_dir=tmp_path) as second,
        claim_for("agent-west", "https://a", data_dir=tmp_path) as third,
    ):
        assert len({first.identity, second.identity, third.identity}) == 3
        assert None not in (first.lock, second.lock, third.lock)
    with claim_for("agent-east", "https://a", data_dir=tmp_path) as again:
        assert again.identity == first.identity


def test_a_directory_that_cannot_be_used_matters_only_to_who_asked_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(BadConfiguration, match="--data-dir"),
        claim_for("agent-east", "https://a", data_dir=tmp_path / "file"),
    ):
        pass
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with claim_for("agent-east", "https://a", data_dir=None) as made_up:
        assert made_up.lock is None
        assert made_up.identity


def test_an_identity_is_kept_and_never_shared(tmp_path: Path) -> None:
    first = kept_identity(tmp_path / "a")
    assert kept_identity(tmp_path / "a") == first
    assert kept_identity(tmp_path / "b") != first
    (tmp_path / "file").write_text("")
    with pytest.raises(BadConfiguration, match="--data-dir"):
        kept_identity(tmp_path / "file")


def test_names_are_kept_in_the_state_directory_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "moved"))
    with claim_for("agent-east", "https://a", data_dir=None) as claim:
        assert [path.name.startswith("agent-east-") for path in (tmp_path / "moved/fairlead").iterdir()] == [True]
        assert claim.lock is not None
    assert not (tmp_path / "home").exists()
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert state_dir().expanduser() == tmp_path / "home/.local/state/fairlead"


def test_tests_keep_their_names_out_of_the_home_directory() -> None:
    assert not state_dir().expanduser().is_relative_to(Path.home())
