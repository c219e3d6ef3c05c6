"""The ConfigMap with error pages that a Gateway names."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from fairlead.agent.sources.gateway.listeners import plan_gateway
from fairlead.agent.sources.gateway.plan import config_maps_named, find
from fairlead.api.names import ANNOTATION_ERROR_PAGES
from fairlead.model.http import MAX_PAGE_BYTES
from tests.unit.agent.gateway_objects import gateway, http, view

pytestmark = pytest.mark.req("F-22")

LARGE = "x" * (MAX_PAGE_BYTES + 1)
FIVE = {f"50{digit}": "x" * MAX_PAGE_BYTES for digit in range(5)}


@pytest.mark.parametrize(
    ("pages", "wrong"),
    [
        ({"404": "lost", "5xx": "sorry"}, ""),
        (None, "does not exist"),
        ({}, "404 or 5xx"),
        ({"404": "lost", "503": LARGE}, "data.503"),
        (FIVE, "data.504"),
    ],
)
def test_bad_pages_alone_are_left_out_and_the_condition_says_why(pages: Mapping[str, str] | None, wrong: str) -> None:
    of = gateway(http("web"))
    of = msgspec.structs.replace(
        of, metadata=msgspec.structs.replace(of.metadata, annotations={ANNOTATION_ERROR_PAGES: "pages"})
    )
    assert config_maps_named(of) == {("infra", "pages")}
    plan = plan_gateway(view(of, error_pages={} if pages is None else {("infra", "pages"): pages}))
    assert plan.spec is not None
    assert plan.spec.error_pages == {
        status: page for status, page in (pages or {}).items() if wrong != f"data.{status}"
    }
    programmed = find(plan.judgements, "Programmed")
    assert (programmed is not None) is bool(wrong)
    assert programmed is None or (wrong in programmed.message and ANNOTATION_ERROR_PAGES in programmed.message)
