"""What a hub says whose rights are missing: one sentence with the next step, and all of them for who asks."""

from __future__ import annotations

import pytest

from fairlead.standalone.hub_settings import hub_needs, missing_rights


@pytest.mark.req("X-21")
def test_many_missing_rights_are_one_line_with_the_first_and_the_next_step() -> None:
    problems = [f"Cannot list things-{number}." for number in range(22)]
    error = missing_rights("https://hub:6443", problems)
    assert error.sentence == (
        "The hub cannot work at https://hub:6443: Cannot list things-0. 21 more rules are missing; --verbose lists "
        "them. Grant all rights of a hub with: kubectl apply -f deploy/kubernetes/hub.yaml"
    )
    assert all(problem in error.detail for problem in problems)


def test_one_missing_right_has_no_count() -> None:
    assert "more rules" not in missing_rights("https://hub:6443", ["Cannot list services."]).sentence


def test_only_a_hub_that_makes_deployments_needs_rights_to_them() -> None:
    plain, more = ({need.resource.plural for need in hub_needs(deployment=each)} for each in (False, True))
    assert "deployments" in more - plain
