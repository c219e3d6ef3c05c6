"""Field ownership of updates."""

import dataclasses

from hypothesis import given
from hypothesis import strategies as st
from podless_objects import LISTS, thing, write

from podless.objects import clone
from podless.patch.managers import track_update


@given(
    st.dictionaries(st.sampled_from("abc"), st.integers(0, 3)),
    st.dictionaries(st.sampled_from("abc"), st.integers(0, 3)),
)
def test_tracking_an_update_twice_changes_nothing(first: dict[str, int], second: dict[str, int]) -> None:
    old = thing(map=[{"k": key, "v": value} for key, value in first.items()])
    track_update(None, old, LISTS, write("one"))
    new = thing(map=[{"k": key, "v": value} for key, value in second.items()])
    new["metadata"]["managedFields"] = clone(old["metadata"].get("managedFields"))
    track_update(old, new, LISTS, write("two"))
    again = clone(new)
    track_update(new, again, LISTS, write("two"))
    assert again == new


def test_a_manager_that_changes_a_value_of_its_own_is_stamped_again() -> None:
    """As a real API server does: the time of a Lease's holder is that of its last renewal."""
    old = thing(map=[{"k": "a", "v": 1}])
    track_update(None, old, LISTS, write("holder"))
    new = thing(map=[{"k": "a", "v": 2}])
    new["metadata"]["managedFields"] = clone(old["metadata"]["managedFields"])
    later = write("holder")
    later = dataclasses.replace(later, now=later.now + 10)
    track_update(old, new, LISTS, later)
    (before,), (after,) = old["metadata"]["managedFields"], new["metadata"]["managedFields"]
    assert after["fieldsV1"] == before["fieldsV1"]
    assert after["time"] > before["time"]
