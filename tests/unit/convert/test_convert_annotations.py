"""Every annotation is converted, listed as lost, or known to be without effect."""

from __future__ import annotations

import pytest
from convert_builders import convert, ingress, remarks

from fairlead.convert.annotations import LOST, READ, WITHOUT_EFFECT, Remarks, nginx_annotations, protecting


def test_an_annotation_is_in_one_of_the_three_tables_only() -> None:
    assert not READ & LOST.keys()
    assert not READ & WITHOUT_EFFECT
    assert not LOST.keys() & WITHOUT_EFFECT


@pytest.mark.req("E-35")
def test_what_cannot_be_said_is_listed_with_what_to_do() -> None:
    conversion = convert(ingress(auth_url="https://a", limit_rps="1", configuration_snippet="x"))
    assert not conversion.lossless
    lost = remarks(conversion)
    assert [each.partition(":")[0] for each in lost] == ["auth-url", "configuration-snippet", "limit-rps"]
    assert "in front of the backend" in lost[0]


def test_tuning_annotations_are_not_a_loss() -> None:
    conversion = convert(ingress(proxy_buffering="on"))
    assert conversion.lossless
    assert remarks(conversion, lost=False) == ["proxy-buffering: only tunes nginx; dropped"]


def test_an_annotation_that_is_not_known_is_lost() -> None:
    assert remarks(convert(ingress(new_thing="1"))) == ["new-thing: this version does not know the annotation"]


def test_those_of_others_are_not_looked_at() -> None:
    made = ingress(app_root=" /x ")
    made.metadata.annotations["example.com/x"] = "y"  # type: ignore[index]
    noted = Remarks()
    assert nginx_annotations(made, noted) == {"app-root": "/x"}
    assert noted.all() == ()


@pytest.mark.req("L7-12")
@pytest.mark.parametrize(
    ("ranges", "protects"),
    [("0.0.0.0/0,::/0", False), ("::/0, 10.0.0.0/8, 0.0.0.0/0", False), ("0.0.0.0/0", True), ("10.0.0.0/8", True)],
)
def test_source_ranges_of_all_addresses_keep_no_request_out(ranges: str, protects: bool) -> None:
    assert bool(protecting({"whitelist-source-range": ranges})) is protects
    assert protecting({"denylist-source-range": ranges})
