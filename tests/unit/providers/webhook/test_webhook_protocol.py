"""Answers of the driver protocol, without any network."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.providers.webhook.protocol import (
    DriverStatus,
    Hook,
    Malformed,
    WebhookAnswer,
    answer_from_body,
    decode,
    kept_from_body,
    message_of,
    task_body,
    verdict_from_body,
)


@pytest.mark.req("L-23")
@pytest.mark.parametrize(
    ("raw", "status", "after_s"),
    [
        (b'{"status":"Succ"}', DriverStatus.SUCC, 0),
        (b'{"status":"Fail"}', DriverStatus.FAIL, 10),
        (b'{"status":"Fail","minRetryDelayInSeconds":0}', DriverStatus.FAIL, 10),
        (b'{"status":"Fail","minRetryDelayInSeconds":25}', DriverStatus.FAIL, 25),
        (b'{"status":"Running","minRetryDelayinSeconds":"25"}', DriverStatus.RUNNING, 25),
        (b'{"Status":"Running","MINRETRYDELAYINSECONDS":-1}', DriverStatus.RUNNING, 10),
        (b'{"status":"Fail","minRetryDelayInSeconds":99999999}', DriverStatus.FAIL, 3600),
    ],
)
def test_answers_of_the_protocol(raw: bytes, status: DriverStatus, after_s: float) -> None:
    answer = answer_from_body(decode(raw))
    assert (answer.status, answer.retry_after_s) == (status, after_s)


@pytest.mark.req("L-23")
@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "empty body"),
        (b"<html>", "HTML"),
        (b"{", "no JSON"),
        (b"[]", "not an object"),
        (b"{}", "no status"),
        (b'{"status":"weird"}', "weird"),
        (b'{"status":"succ"}', "unknown status"),
        (b'{"status":true}', "unknown status"),
        (b'{"status":["Succ"]}', "unknown status"),
        (b'{"status":"Fail","minRetryDelayInSeconds":"soon"}', "minRetryDelayInSeconds"),
        (b'{"status":"Fail","minRetryDelayInSeconds":{}}', "minRetryDelayInSeconds"),
        (b"\xff\xfe", "no JSON"),
    ],
)
def test_everything_else_is_malformed(raw: bytes, message: str) -> None:
    with pytest.raises(Malformed, match=message):
        answer_from_body(decode(raw))


@settings(max_examples=60)
@given(st.binary(max_size=200))
def test_no_bytes_are_taken_for_a_success_by_accident(raw: bytes) -> None:
    try:
        answer = answer_from_body(decode(raw))
    except Malformed:
        return
    assert b'"Succ"' in raw or answer.status is not DriverStatus.SUCC


@settings(max_examples=60)
@given(
    st.dictionaries(
        st.sampled_from(["backends", "injectedinfo"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=5),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        ),
    )
)
def test_fields_have_their_type_or_are_malformed(body: dict[str, object]) -> None:
    answer = WebhookAnswer(DriverStatus.SUCC, "", 0, body)
    for read in (lambda: answer.strings("injectedInfo").values(), lambda: answer.texts("backends")):
        with contextlib.suppress(Malformed):
            assert all(isinstance(value, str) for value in read())


@pytest.mark.req("L-22")
def test_record_id_stays_and_retry_id_does_not() -> None:
    bodies = [task_body(Hook.ENSURE_BACKEND, "uid-1", dry_run=False) for _ in range(50)]
    assert {body["recordID"] for body in bodies} == {"ensureBackend(uid-1)"}
    assert len({body["retryID"] for body in bodies}) == 50


def test_messages_are_one_short_line() -> None:
    assert message_of({"msg": "a\n\tb\x1b[31m \u202e" + "x" * 9000}).startswith("a b [31m x")
    assert len(message_of({"msg": "x" * 9000})) == 500
    assert message_of({}) == ""


def test_verdicts_and_kept_pods() -> None:
    assert verdict_from_body({"succ": True, "msg": "fine"}) == ""
    assert verdict_from_body({"succ": False, "msg": "no"}) == "no"
    assert verdict_from_body({"succ": False}) == "the driver gave no reason"
    with pytest.raises(Malformed):
        verdict_from_body({"succ": "yes"})
    pod = {"metadata": {"namespace": "shop", "name": "web-1"}}
    assert kept_from_body({"donotderegister": [pod]}) == {("shop", "web-1")}
    assert kept_from_body({"donotderegister": None}) == frozenset()
    for wrong in ([1], [{}], "web-1", [{"metadata": {}}]):
        with pytest.raises(Malformed):
            kept_from_body({"donotderegister": wrong})
