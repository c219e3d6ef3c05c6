"""What HAProxy prints, read into a snapshot."""

from __future__ import annotations

import pytest

from fairlead.errors import Retry
from fairlead.providers.haproxy.snapshot import snapshot_from_text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Pid: 7\n\n1\n# be_id be_name srv_id\n3 b 1\n\n", "cannot be read"),
        ("Pid: 7\n\n1\n# be_id be_name srv_name srv_admin_state\n3 b x many\n\n", "cannot be read"),
        ("", "does not speak"),
        ("HTTP/1.1 400 Bad Request\r\n", "does not speak"),
        ("Permission denied\n", "level admin"),
    ],
)
def test_another_program_on_the_socket_is_noticed(text: str, message: str) -> None:
    with pytest.raises(Retry, match=message):
        snapshot_from_text(text, "b", socket="/s")


def test_complaints_do_not_hide_what_is_there() -> None:
    text = (
        "unknown keyword 'foo'; did you mean: bar\n\nName: HAProxy\nVersion: 3.0.1\nPid: 7\nStart_time_sec: 9\n"
        "Stopping: 0\n\n1\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight "
        "srv_check_state srv_port some_new_field\n3 b 1 x 2001:DB8::1 2 8 5 6 80 -\n"
        "3 other 1 y 10.0.0.1 2 0 5 0 80 -\n\n"
    )
    snapshot = snapshot_from_text(text, "b", socket="/s")
    assert (snapshot.epoch, snapshot.version, snapshot.messages) == (
        "7@9",
        "3.0.1",
        ("unknown keyword 'foo'; did you mean: bar",),
    )
    assert snapshot.servers is not None
    assert list(snapshot.servers) == ["x"]
    assert (snapshot.servers["x"].address, snapshot.servers["x"].draining, snapshot.servers["x"].check_idle) == (
        "2001:db8::1",
        True,
        False,
    )


def test_half_an_answer_never_counts_as_a_backend_with_fewer_servers() -> None:
    head = "Name: HAProxy\nVersion: 3.0.1\nPid: 7\nStart_time_sec: 9\nStopping: 0\n\n"
    table = (
        "1\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_check_state "
        "srv_port\n"
        "3 b 1 x 10.0.0.1 2 0 5 6 80\n3 b 2 y 10.0.0.2 2 0 5 6 8080\n\n"
    )
    text = head + table
    assert set(snapshot_from_text(text, "b", socket="/s").servers or ()) == {"x", "y"}
    for end in range(len(head), len(text)):
        with pytest.raises(Retry):
            snapshot_from_text(text[:end], "b", socket="/s")
