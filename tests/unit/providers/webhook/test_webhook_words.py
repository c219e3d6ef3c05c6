"""What may be in a class and in an answer, without any network."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.errors import BadConfiguration
from fairlead.providers.webhook.protocol import (
    Answer,
    Hook,
    Malformed,
    Status,
    answer_from_body,
    decode,
    kept_from_body,
    message_of,
    task_body,
    verdict_from_body,
)
from fairlead.providers.webhook.settings import lb_spec, settings_from_parameters

URL = "https://driver.example:8443/prefix"


@pytest.mark.req("L-23")
@pytest.mark.parametrize(
    ("raw", "status", "after_s"),
    [
        (b'{"status":"Succ"}', Status.SUCC, 0),
        (b'{"status":"Fail"}', Status.FAIL, 10),
        (b'{"status":"Fail","minRetryDelayInSeconds":0}', Status.FAIL, 10),
        (b'{"status":"Fail","minRetryDelayInSeconds":25}', Status.FAIL, 25),
        (b'{"status":"Running","minRetryDelayinSeconds":"25"}', Status.RUNNING, 25),
        (b'{"Status":"Running","MINRETRYDELAYINSECONDS":-1}', Status.RUNNING, 10),
        (b'{"status":"Fail","minRetryDelayInSeconds":99999999}', Status.FAIL, 3600),
    ],
)
def test_answers_of_the_protocol(raw: bytes, status: Status, after_s: float) -> None:
    answer = answer_from_body(decode(raw))
    assert (answer.status, answer.retry_after_s) == (status, after_s)


@pytest.mark.req("L-23")
@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "empty body"),
        (b"<html>", "HTML"),
        (b"{", "no JSON"),
        (b"[]", "no object"),
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
def test_everything_else_is_malformed(raw: bytes, words: str) -> None:
    with pytest.raises(Malformed, match=words):
        answer_from_body(decode(raw))


@settings(max_examples=60)
@given(st.binary(max_size=200))
def test_no_bytes_are_taken_for_a_success_by_accident(raw: bytes) -> None:
    try:
        answer = answer_from_body(decode(raw))
    except Malformed:
        return
    assert b'"Succ"' in raw or answer.status is not Status.SUCC


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
    answer = Answer(Status.SUCC, "", 0, body)
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


@pytest.mark.req("L-25")
def test_each_hook_has_its_own_timeout() -> None:
    settings = settings_from_parameters({"url": URL, "timeout.ensureBackend": "60s", "timeout": "500ms"})
    assert settings.timeout_of(Hook.ENSURE_BACKEND) == 60
    assert settings.timeout_of(Hook.DEREGISTER_BACKEND) == 0.5
    assert settings_from_parameters({"url": URL}).timeout_of(Hook.JUDGE_POD_DEREGISTER) == 10
    assert (
        settings_from_parameters({"url": URL, "timeout.judgePodDeregister": "2s"}).timeout_of(Hook.JUDGE_POD_DEREGISTER)
        == 2
    )


@pytest.mark.req("L-25")
@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({}, "url is missing"),
        ({"url": "ftp://x"}, "http or https"),
        ({"url": "https://"}, "http or https"),
        ({"url": "https://x y/"}, "http or https"),
        ({"url": "https://[::1"}, "http or https"),
        ({"url": "https://x:0/"}, "http or https"),
        ({"url": "https://x:99999/"}, "http or https"),
        ({"url": "https://user:geheim@x/"}, "no user"),
        ({"url": "https://x/?token=geheim"}, "no user"),
        ({"url": URL, "timeout": "0s"}, "at most 60"),
        ({"url": URL, "timeout": "61s"}, "at most 60"),
        ({"url": URL, "timeout": "soon"}, "not a duration"),
        ({"url": URL, "timeout.ensureBackends": "1s"}, "names no hook"),
        ({"url": URL, "parallel": "0"}, "1 to 64"),
        ({"url": URL, "parallel": "65"}, "1 to 64"),
        ({"url": URL, "parallel": "²"}, "1 to 64"),
        ({"url": URL, "credentials": "../../etc"}, "folder"),
        ({"url": URL, "credentials": "a..b"}, "folder"),
        ({"url": URL, "credentials": "/etc"}, "folder"),
    ],
)
def test_mistakes_in_a_class_name_the_parameter(parameters: dict[str, str], words: str) -> None:
    with pytest.raises(BadConfiguration, match=words) as caught:
        settings_from_parameters(parameters)
    assert "geheim" not in str(caught.value)


def test_the_driver_gets_only_what_is_its_business() -> None:
    everything = {"url": URL, "timeout": "1s", "timeout.healthz": "1s", "parallel": "1", "verify": "true", "lbID": "x"}
    assert lb_spec(everything) == {"lbID": "x"}
