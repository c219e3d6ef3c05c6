"""Server-side apply."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from podless_objects import LISTS, thing, write

from podless.failure import ApiFailure
from podless.patch import apply
from podless.patch.apply import merge, server_side_apply


def test_items_change_places_as_the_configuration_says() -> None:
    live = {"map": [{"k": "a"}, {"k": "other"}, {"k": "b"}]}
    merged = merge(live, {"map": [{"k": "b"}, {"k": "a"}, {"k": "new"}]}, LISTS.properties["spec"])
    assert [item["k"] for item in merged["map"]] == ["b", "other", "a", "new"]


def test_giving_up_an_item_keeps_what_another_owns() -> None:
    obj = server_side_apply(None, thing(map=[{"k": "a", "v": 1}]), LISTS, write("one"), force=False)
    obj = server_side_apply(obj, thing(map=[{"k": "a"}]), LISTS, write("two"), force=False)
    obj = server_side_apply(obj, thing(), LISTS, write("one"), force=False)
    assert obj["spec"]["map"] == [{"k": "a"}]
    obj = server_side_apply(obj, thing(), LISTS, write("two"), force=False)
    assert "map" not in obj.get("spec", {})


@pytest.mark.req("X-6")
def test_only_a_new_value_moves_the_managers_time() -> None:
    first = server_side_apply(None, thing(map=[{"k": "a", "v": 1}]), LISTS, write("holder"), force=False)
    later = dataclasses.replace(write("holder"), now=write("holder").now + 10)
    same = server_side_apply(first, thing(map=[{"k": "a", "v": 1}]), LISTS, later, force=False)
    other = server_side_apply(first, thing(map=[{"k": "a", "v": 2}]), LISTS, later, force=False)
    (before,), (unmoved,), (moved,) = (obj["metadata"]["managedFields"] for obj in (first, same, other))
    assert (unmoved["time"], moved["time"] > before["time"]) == (before["time"], True)


def test_an_object_without_managers_belongs_to_before_first_apply() -> None:
    with pytest.raises(ApiFailure, match="before-first-apply"):
        server_side_apply(thing(atomic=[1]), thing(atomic=[2]), LISTS, write("one"), force=False)


@given(
    st.lists(
        st.tuples(st.sampled_from(["m1", "m2"]), st.dictionaries(st.sampled_from("abc"), st.integers(0, 2))), max_size=6
    )
)
def test_forced_applies_end_with_what_the_last_ones_state(steps: list[tuple[str, dict[str, int]]]) -> None:
    obj: Any = None
    last: dict[str, dict[str, int]] = {}
    for manager, whole in steps:
        config = thing(map=[{"k": key, "v": value} for key, value in whole.items()])
        obj = server_side_apply(obj, config, LISTS, write(manager), force=True)
        last[manager] = whole
    have = {item["k"] for item in (obj or thing()).get("spec", {}).get("map", [])}
    assert have == {key for whole in last.values() for key in whole}


@pytest.mark.req("S-4")
def test_what_an_apply_gives_up_costs_each_item_once(monkeypatch: pytest.MonkeyPatch) -> None:
    count, calls = 200, 0
    read = apply.step_of

    def counted(item: Any, node: Any) -> str:
        nonlocal calls
        calls += 1
        return read(item, node)

    whole = thing(map=[{"k": f"k{n}", "v": n, "w": n} for n in range(count)])
    obj = server_side_apply(None, whole, LISTS, write("one"), force=False)
    monkeypatch.setattr(apply, "step_of", counted)
    names = thing(map=[{"k": f"k{n}"} for n in range(count)])
    assert server_side_apply(obj, names, LISTS, write("one"), force=False)["spec"] == names["spec"]
    assert calls < 10 * count
