"""The simulator: the same seed gives the same run, a violation shrinks to a story, and the invariants hold."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulate import invariants

_ROOT = Path(__file__).parents[2]


def simulate(*arguments: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own: its loop and its link are not those of tests."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-m", "tests.simulate", *arguments]
    return subprocess.run(command, cwd=_ROOT, env=environment, capture_output=True, text=True, timeout=850, check=False)


@pytest.mark.parametrize("seed", ["5", "7", "19"])
def test_one_seed_gives_one_trace(seed: str) -> None:
    first, second = (simulate("--seed", seed, hash_seed=text).stdout for text in ("1", "77"))
    assert first == second
    assert re.search(r"digest [0-9a-f]{8}", first)


def test_a_story_replays_its_seed() -> None:
    by_seed = simulate("--seed", "11").stdout
    story = by_seed.splitlines()[0]
    assert simulate("--story", story).stdout == by_seed


def test_a_violation_shrinks_to_a_story_that_replays() -> None:
    # What is deleted while the only hub is gone is not torn down.
    shape = '{"kind":"hub","hubs":0}'
    events = "0 tenant east {}; 1 tenant west {}; 2 class hw; 9 end"
    shrunk = simulate("--story", f"seed 1 shape {shape}; {events}", "--shrink", "--no-trace")
    assert shrunk.returncode == 1
    story = next(line for line in shrunk.stdout.splitlines() if line.startswith("minimal: ")).removeprefix("minimal: ")
    assert story.count(" tenant ") == 1
    assert " class " not in story
    replayed = simulate("--story", story, "--no-trace")
    assert replayed.returncode == 1
    assert "every_key_is_retried" in replayed.stdout


def test_the_document_names_every_invariant() -> None:
    files = (Path(invariants.__file__), *(Path(__file__).parent / name for name in ("story.py", "zone.py")))
    code = "".join(file.read_text() for file in files)
    checked = set(re.findall(r'(?:fail\(|yield |name = )\s*"(\w+)"', code)) | {"what_is_released_is_given"}
    named = set(re.findall(r"^\| `(\w+)`", (_ROOT / "docs/invariants.md").read_text(), re.MULTILINE))
    assert checked == named


def test_the_invariants_hold_in_fixed_seeds() -> None:
    run = simulate("--first", "1", "--seeds", "60", "--workers", "1")
    assert run.returncode == 0, run.stdout


def test_former_faults_are_found() -> None:
    run = simulate(
        "--prove", "refused_once_is_forgotten", "terminating_pods_get_nothing", "--first", "1", "--seeds", "60"
    )
    assert run.returncode == 0, run.stdout


@pytest.mark.req("MC-20", "MC-22")
def test_a_hub_that_withdraws_addresses_of_others_is_found() -> None:
    run = simulate("--prove", "no_lease_has_expired", "--first", "13", "--seeds", "1", "--workers", "1")
    assert run.returncode == 0, run.stdout
    assert "other_hubs_keep_their_addresses" in run.stdout


@pytest.mark.req("CORE-03")
def test_an_address_stays_in_the_region_that_gave_it() -> None:
    shape = '{"kind":"region","hubs":2,"regions":["us","eu"],"pool":"192.0.2.0/29"}'
    events = (
        "0 tenant east {}; 0 tenant west {}; 10 lb west b envoy 443 192.0.2.2 - us; 11 stop hub-0; "
        "24 lb west b envoy 443 - - eu; 25 lb east a envoy 80 192.0.2.2 - us; 31 start hub-0; 36 end"
    )
    run = simulate("--story", f"seed 1 shape {shape}; {events}", "--no-trace")
    assert run.returncode == 0, run.stdout


_SHAPE = '{"kind":"hub","hubs":1,"pool":"192.0.2.0/30"}'


@pytest.mark.req("CORE-03")
def test_generated_names_outlive_a_restart_with_an_unreadable_tenant() -> None:
    events = "0 tenant east {}; 8 lb east a envoy 80 - - -; 88 spoil tenants east a spec; 89 stop hub-0; 90 start hub-0"
    run = simulate("--story", f"seed 1 shape {_SHAPE}; {events}; 119 end", "--no-trace")
    assert run.returncode == 0, run.stdout


@pytest.mark.req("CORE-10")
def test_a_cache_that_lists_again_brings_a_status_up_to_date() -> None:
    story = (
        'seed 413601880 shape {"kind":"hub","hubs":2,"lease_s":15.0,"pool":"192.0.2.0/29"}; 0 tenant east {}; '
        "0 tenant west {}; 0 class hw; 6.5 endpoints east a 1:R,5:R; 6.6 expire hub; 7.6 lb west d hw 80 - - -; "
        "7.6 endpoints west d 1:R,5:R; 7.6 expire hub; 7.6 expire hub; 8.1 expire hub; 28.1 end"
    )
    run = simulate("--story", story, "--no-trace")
    assert run.returncode == 0, run.stdout


def test_a_region_without_its_hub_is_torn_down_from_what_is_recorded() -> None:
    story = (
        'seed 145534073 shape {"kind":"hub","hubs":2,"lease_s":30.0,"pool":"192.0.2.0/29"}; 0 tenant east {}; '
        "0 class hw; 95 stop hub-0; 104.1 start hub-0 region=eu; 107.1 lb east a hw 80,443 - - eu; "
        "107.1 endpoints east a 3:R; 182.6 unlb east a; 182.7 stop hub-0; 184.7 start hub-0 region=; 188.2 end"
    )
    run = simulate("--story", story, "--no-trace")
    assert run.returncode == 0, run.stdout


def test_an_object_made_again_does_not_keep_the_address_of_the_former_one() -> None:
    story = (
        'seed 278209510 shape {"kind":"agent","hubs":1,"agents":["east"],"lease_s":15.0,"pool":"192.0.2.0/30"}; '
        "0 tenant east {}; 0 tenant west {}; 86 lb east a envoy 443 - - -; 86 lb west a envoy 80,443 - - -; "
        "93.1 lag hub-0 hub * 2.0; 93.6 unlb east a; 94.3 lb east a envoy 80,443 192.0.2.1 - -; "
        "94.8 lb east c envoy 80,443 192.0.2.2 - -; 95.8 end"
    )
    run = simulate("--story", story, "--no-trace")
    assert run.returncode == 0, run.stdout


@pytest.mark.parametrize(
    "story",
    [
        pytest.param(
            'seed 191433776 shape {"kind":"zone","hubs":2,"lease_s":15.0,"pool":"192.0.2.0/29"}; 0 share hub 15; '
            "0 share hub-b 15; 8 publish hub web.example.test 192.0.2.1 192.0.2.1; 27 weather hub-0 hub 0.4 slow; "
            "35 clear hub-0 hub; 126 zonecut hub-0; 131.5 publish hub-b web.example.test 192.0.2.129 192.0.2.129; "
            "137 publish hub api.example.test 192.0.2.1,203.0.113.9 -; 146 zoneopen hub-0; "
            "152 publish hub-b api.example.test 192.0.2.130 -; 172 end",
            id="a-lease-renewed-after-it-was-judged",
            marks=pytest.mark.req("MC-22"),
        ),
        pytest.param(
            'seed 393461578 shape {"kind":"hub","hubs":1,"lease_s":30.0,"pool":"192.0.2.0/30"}; 0 tenant east {}; '
            "0 tenant west {}; 8 webhook hub tcploadbalancers 403; 24.6 lb west d envoy 80 192.0.2.1 x.example.org -; "
            "25.6 lb west b envoy 80 - - -; 27.6 lb east d envoy 443 192.0.2.2 - -; "
            "34.1 lb west b envoy 80,443 192.0.2.1 - -; 44.6 end",
            id="an-address-that-could-not-be-recorded",
        ),
        pytest.param(
            'seed 897908954 shape {"kind":"hub","hubs":2,"lease_s":15.0,"pool":"192.0.2.0/30"}; '
            "6.1 droplease fairlead-hub; 6.1 kill hub-0; 6.1 kill hub-1; 7.1 start hub-0; 7.1 start hub-1; "
            "8.1 droplease fairlead-hub; 49.2 end",
            id="a-lease-deleted-in-a-young-namespace",
            marks=pytest.mark.req("CORE-04"),
        ),
        pytest.param(
            'seed 524090614 shape {"kind":"region","hubs":2,"regions":["","eu"],"lease_s":30.0,"pool":"192.0.2.0/30"}; '
            "0 tenant west {}; 0 class hw; 7 lb west b hw 80,443 - - -; 7.3 endpoints west b 1:R,5:R; "
            "80 spoil tcploadbalancers west b status; 80.5 kill hub-0; 80.5 stop hub-1; 83 start hub-1; "
            "85 lb west b envoy 80 - - eu; 85.5 endpoints west b 1:R; 100 end",
            id="a-load-balancer-that-moves-while-it-cannot-be-read",
        ),
        pytest.param(
            'seed 608959623 shape {"kind":"zone","hubs":2,"lease_s":15.0,"pool":"192.0.2.0/29"}; 0 share hub 15; '
            "0 share hub-b 15; 8 publish hub-b web.example.test 192.0.2.129,192.0.2.130 -; "
            "8 publish hub-b api.example.test 192.0.2.130 -; 42 publish hub web.example.test 203.0.113.9 -; "
            "72 publish hub-b web.example.test 203.0.113.9 -; 72 unpublish hub web.example.test; 148 end",
            id="an-address-that-two-hubs-remove-and-add",
            marks=pytest.mark.req("MC-21"),
        ),
        pytest.param(
            'seed 163328888 shape {"kind":"zone","hubs":2,"lease_s":15.0,"pool":"192.0.2.0/29"}; 0 share hub 15; '
            "0 share hub-b 15; 8 publish hub web.example.test 203.0.113.9 203.0.113.9; "
            "8 publish hub api.example.test 192.0.2.1,192.0.2.2 192.0.2.2; "
            "8 publish hub-b web.example.test 192.0.2.129,203.0.113.9 192.0.2.129,203.0.113.9; "
            "8 publish hub-b api.example.test 192.0.2.129,192.0.2.130 192.0.2.130; "
            "83 publish hub web.example.test 192.0.2.2 -; 163 zonecut hub-1; 165 unpublish hub web.example.test; "
            "175 share hub-b 0; 213 zoneopen hub-1; 215 end",
            id="a-hub-that-stops-sharing-while-it-cannot-write",
            marks=pytest.mark.req("MC-22"),
        ),
    ],
)
def test_former_violations_hold(story: str) -> None:
    run = simulate("--story", story, "--no-trace")
    assert run.returncode == 0, run.stdout
