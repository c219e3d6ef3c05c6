"""Where each of LBCF's scenarios is played: the table is checked against what is there.

    LT-1   lbcf/test_lbcf_records.py::test_lt01_the_record_with_everything_in_it_is_there_before_the_driver_is_asked
    LT-1   lbcf/test_lbcf_records.py::test_lt01_an_address_is_generated_once_from_the_whole_pod
    LT-2   lbcf/test_lbcf_records.py::test_lt02_a_pod_that_is_not_available_has_no_record
    LT-3   lbcf/test_lbcf_records.py::test_lt03_two_load_balancers_two_ports_two_pods
    LT-4   lbcf/test_lbcf_records.py::test_lt04_a_pod_by_name_that_is_not_there_is_nothing
    LT-5   lbcf/test_lbcf_records.py::test_lt05_a_node_port_service_is_one_backend_for_each_matching_node
    LT-6   lbcf/test_lbcf_records.py::test_lt06_a_static_address_is_taken_as_it_is
    LT-7   lbcf/test_lbcf_restarts.py::test_lt07_a_pod_that_goes_while_no_hub_runs_is_found_missing
    LT-8   lbcf/test_lbcf_restarts.py::test_lt08_what_is_deleted_while_no_hub_runs_is_deregistered_afterwards
    LT-9   lbcf/test_lbcf_restarts.py::test_lt09_a_server_of_others_is_never_spoken_of
    LT-10  lbcf/test_lbcf_restarts.py::test_lt10_what_an_operator_changed_stays_and_a_calm_restart_does_nothing
    LT-11  lbcf/test_lbcf_restarts.py::test_lt11_always_means_no_sooner_than_the_period_across_a_restart_too
    LT-12  lbcf/test_lbcf_records.py::test_lt12_other_parameters_are_ensured_in_place
    LT-13  lbcf/test_lbcf_records.py::test_lt13_other_attributes_reach_the_driver_once_and_every_record
    LT-14  lbcf/test_lbcf_records.py::test_lt14_a_load_balancer_that_goes_takes_its_records_first
    LT-15  lbcf/test_lbcf_records.py::test_lt15_a_load_balancer_that_a_group_leaves_loses_that_groups_records_only
    LT-16  hub
    LT-17  lbcf/test_lbcf_calls.py::test_lt17_an_address_that_is_not_generated_registers_nothing
    LT-18  lbcf/test_lbcf_calls.py::test_lt18_a_failed_registration_stores_no_injected_info
    LT-19  lbcf/test_lbcf_calls.py::test_lt19_lt20_the_finalizer_stays_until_the_deregistration_is_done
    LT-20  lbcf/test_lbcf_calls.py::test_lt19_lt20_the_finalizer_stays_until_the_deregistration_is_done
    LT-21  lbcf/test_lbcf_calls.py::test_lt21_without_an_address_no_driver_is_asked_to_deregister
    LT-22  lbcf/test_lbcf_calls.py::test_lt22_a_registration_waits_for_the_deregistration_of_the_same_address
    LT-23  lbcf/test_lbcf_calls.py::test_lt23_and_it_does_so_across_a_restart
    LT-24  lbcf/test_lbcf_calls.py::test_lt24_a_conflict_on_the_finalizer_never_takes_the_successor_away
    LT-25  hub
    LT-26  hub
    LT-27  lbcf/test_lbcf_restarts.py::test_lt27_labels_move_a_pod_between_groups_and_other_labels_move_nothing
    LT-28  lbcf/test_lbcf_restarts.py::test_lt28_reading_everything_again_does_nothing
    LT-29  lbcf/test_lbcf_calls.py::test_lt29_a_creation_without_lb_info_takes_lb_spec_for_it
    LT-30  lbcf/test_lbcf_calls.py::test_lt30_a_load_balancer_stays_until_its_driver_has_deleted_it
    LT-31  hub
    LT-32  hub
    LT-33  hub
    LT-34  lbcf/test_lbcf_calls.py::test_lt34_each_hook_has_its_own_time_and_what_is_too_slow_says_so
    LT-35  contract::test_delays_grow_to_a_limit_and_reset_after_success
    LT-36  lbcf/test_lbcf_preview.py::test_lt36_a_plan_calls_only_who_agreed_and_changes_nothing
    LT-37  lbcf/test_lbcf_records.py::test_lt37_only_what_differs_is_created_updated_or_deleted
    LT-38  hub
    LT-39  lbcf/test_lbcf_calls.py::test_lt39_a_deleted_record_is_deregistered_and_recreated
    LT-40  lbcf/test_lbcf_restarts.py::test_lt40_killed_at_any_call_or_write_it_ends_the_same
    LT-40  records/test_records_simulation.py::test_a_crash_at_any_call_changes_nothing_in_the_end

``hub``: played in tests/scenario/hub, whose tests name the row. ``contract``: in tests/contract/providers.
"""

from __future__ import annotations

from pathlib import Path

_SCENARIOS = Path(__file__).parents[1]
_FOLDERS = {"hub": _SCENARIOS / "hub", "contract": _SCENARIOS.parent / "contract" / "providers"}
_ROWS = [tuple(line.split()) for line in __doc__.splitlines() if line.startswith("    LT-")]


def text_of(folder: Path) -> str:
    return "\n".join(path.read_text() for path in sorted(folder.glob("test_*.py")))


def test_every_row_is_listed_and_every_test_that_is_named_is_there() -> None:
    assert {row for row, _ in _ROWS} == {f"LT-{number}" for number in range(1, 41)}
    missing = []
    for row, where in _ROWS:
        place, _, name = where.partition("::")
        result = text_of(_FOLDERS[place]) if place in _FOLDERS else (_SCENARIOS / place).read_text()
        number = int(row.removeprefix("LT-"))
        named = f"def {name}(" in result if name else f"lt{number:02}_" in result or f"{row}" in result
        if not named:
            missing.append((row, where))
    assert missing == []
