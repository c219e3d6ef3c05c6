"""What an HTTP answer or a socket error means: which error, hence whether to try again, and the sentence about it."""

from __future__ import annotations

import json

import pytest

from fairlead.api.kubernetes import ENDPOINT_SLICES, NODES, SERVICES
from fairlead.api.meta import AnyResource
from fairlead.errors import (
    AlreadyExists,
    BadConfiguration,
    Conflict,
    Expired,
    FairleadError,
    Forbidden,
    Invalid,
    NamespaceNotFound,
    NotFound,
    NotServed,
    Throttled,
    Unauthorized,
    Unreachable,
)
from fairlead.kube.config import ClusterConfig
from fairlead.kube.transport import (
    Call,
    error_from_answer,
    error_from_exception,
    forbidden_sentence,
    parse_status,
    seconds_of,
)

CONFIG = ClusterConfig(server="https://hub:6443", user="east", source="./kubeconfig")


def call(
    verb: str = "get", resource: AnyResource | None = SERVICES, namespace: str = "shop", name: str = "web"
) -> Call:
    return Call(config=CONFIG, cluster="hub", verb=verb, resource=resource, namespace=namespace, name=name, path="/x")


def body(message: str = "", reason: str = "", **details: object) -> bytes:
    return json.dumps({"kind": "Status", "message": message, "reason": reason, "details": details}).encode()


def gone(**details: object) -> bytes:
    return body("it is gone", "NotFound", **details)


@pytest.mark.parametrize(
    ("code", "answer", "error", "text"),
    [
        (302, b"", BadConfiguration, "answers with a redirect (302)"),
        (400, body("no such field"), Invalid, "no such field"),
        (401, body(), Unauthorized, 'the credentials of user "east" of ./kubeconfig'),
        (403, body(), Forbidden, 'lacks the right to "get" services in namespace "shop"'),
        (403, body('pods "a" is forbidden: exceeded quota: q'), Forbidden, 'pods "a" is forbidden: exceeded quota: q.'),
        (403, body('admission webhook "v.example.com" denied the request: no'), Invalid, "denied the request: no."),
        (
            403,
            body("x \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"),
            Invalid,
            "no.",
        ),
        (403, body('pods "a" is forbidden: violates PodSecurity "baseline:latest"'), Invalid, "violates PodSecurity"),
        (404, gone(name="web", kind="services"), NotFound, "there is no such object"),
        (404, gone(name="shop", kind="namespaces"), NamespaceNotFound, 'namespace "shop" does not exist. Create it'),
        (409, body(reason="AlreadyExists"), AlreadyExists, "it exists already"),
        (409, body("version 3"), Conflict, "version 3"),
        (410, body(), Expired, "Listing again"),
        (429, body(), Throttled, "slow down"),
        (408, body(), Unreachable, "the server answered 408"),
        (503, body("etcd"), Unreachable, "the server answered 503 (etcd)"),
    ],
)
def test_each_answer_is_an_error_that_says_whether_to_try_again(
    code: int, answer: bytes, error: type[FairleadError], text: str
) -> None:
    raised = error_from_answer(call(), code, answer)
    assert type(raised) is error
    assert text in raised.sentence
    assert "services shop/web at hub (hub:6443)" in raised.sentence


def test_an_unserved_kind_differs_from_a_missing_object() -> None:
    raised = error_from_answer(call("list", name=""), 404, b"404 page not found\n")
    assert type(raised) is NotServed
    assert "does not serve Service in v1. Install its CustomResourceDefinition" in raised.sentence


#: How servers name the object that is missing; the first two are what kube-apiserver answers.
NAMED = [
    (SERVICES, {"name": "web", "kind": "services"}),
    (ENDPOINT_SLICES, {"name": "web", "group": "discovery.k8s.io", "kind": "endpointslices"}),
    (ENDPOINT_SLICES, {"name": "web", "group": "discovery.k8s.io", "kind": "EndpointSlice"}),
    (ENDPOINT_SLICES, {"name": "web", "kind": "endpointslices", "uid": "x"}),
]
#: What says nothing of the object services shop/web, and which error it is.
NOT_NAMED = [
    (b"", Unreachable),
    (b"default backend - 404", Unreachable),
    (b'{"error": "no route"}', Unreachable),
    ('{"message": "ungültig"}'.encode("latin-1"), Unreachable),
    (
        b'{"kind": "Status", "reason": "NotFound", "details": ' + b'{"a":' * 2_000 + b"1" + b"}" * 2_000 + b"}",
        NotServed,
    ),
    (b"[" * 5_000, Unreachable),
    (gone(name="web", kind="pods"), Unreachable),
    (gone(name="other", kind="services"), Unreachable),
    (gone(name="web", kind="services", group="serving.knative.dev"), Unreachable),
    (gone(name="other", kind="namespaces"), Unreachable),
    (gone(name=["web"], kind="services"), NotServed),
    (gone(kind="services"), NotServed),
    (body("gone", "Gone", name="web", kind="services"), Unreachable),
    (gone(name="web", kind="services").replace(b'"Status"', b'"Error"'), Unreachable),
    (b"404 page not found\n", NotServed),
    (body("the server could not find the requested resource", "NotFound"), NotServed),
]


@pytest.mark.req("CORE-01")
@pytest.mark.parametrize(("resource", "details"), NAMED)
@pytest.mark.parametrize("verb", ["get", "patch", "apply", "replace", "delete"])
def test_an_object_is_missing_when_the_server_names_it(
    resource: AnyResource, details: dict[str, object], verb: str
) -> None:
    assert type(error_from_answer(call(verb, resource), 404, gone(**details))) is NotFound


@pytest.mark.req("CORE-01")
@pytest.mark.parametrize(("answer", "error"), NOT_NAMED)
@pytest.mark.parametrize("verb", ["get", "patch", "apply", "replace", "delete", "create", "list", "watch"])
def test_a_404_that_does_not_name_the_object_says_nothing_of_it(
    answer: bytes, error: type[FairleadError], verb: str
) -> None:
    raised = error_from_answer(call(verb, name="" if verb in ("list", "watch") else "web"), 404, answer)
    assert type(raised) is error
    assert not isinstance(raised, NotFound)


@pytest.mark.req("CORE-01")
@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/api/v1/namespaces/shop/services/web", NotFound),
        ("/api/v1/namespaces/shop/services/webs", Unreachable),
        ("/api/v1/namespaces/web/services", Unreachable),
        ("/web", Unreachable),
    ],
)
def test_a_request_by_path_names_its_object_too(path: str, error: type[FairleadError]) -> None:
    of_path = Call(config=CONFIG, cluster="hub", verb="get", path=path)
    assert type(error_from_answer(of_path, 404, gone(name="web", kind="services"))) is error


@pytest.mark.parametrize(
    ("header", "seconds"), [("3", 3.0), ("-1", None), ("inf", None), ("Wed, 21 Oct 2015", None), (None, None)]
)
def test_the_pause_that_a_server_names(header: str | None, seconds: float | None) -> None:
    assert seconds_of(header) == seconds


def test_the_header_counts_before_the_body() -> None:
    both = error_from_answer(call(), 429, body(retryAfterSeconds=7), retry_after="2")
    alone = error_from_answer(call(), 429, body(retryAfterSeconds=7))
    assert isinstance(both, Throttled)
    assert isinstance(alone, Throttled)
    assert (both.after_s, alone.after_s) == (2.0, 7.0)


@pytest.mark.req("CORE-16")
@pytest.mark.parametrize(
    ("header", "seconds", "expected"),
    [
        ("3600", 0, 60.0),
        (None, 3_600, 60.0),
        (None, 10**400, 60.0),
        (None, -5, 0.0),
        ("9" * 5_000, 2, 2.0),
        (None, 30, 30.0),
        (None, "5", None),
        (None, 1.5e300, None),
    ],
)
def test_no_server_has_us_wait_for_an_hour(header: str | None, seconds: object, expected: float | None) -> None:
    for code, kind in ((429, Throttled), (503, Unreachable), (409, Conflict)):
        raised = error_from_answer(call(), code, body(retryAfterSeconds=seconds), retry_after=header)
        assert isinstance(raised, kind)
        assert raised.after_s == expected


def test_a_body_without_status_becomes_the_shortened_message() -> None:
    assert parse_status(b"<html>" + b"x" * 500).message == "<html>" + "x" * 194


@pytest.mark.parametrize(
    ("resource", "namespace", "where"),
    [
        (SERVICES, "shop", 'in namespace "shop"'),
        (SERVICES, "", "in all namespaces (a ClusterRole)"),
        (NODES, "", "nodes (a ClusterRole)"),
    ],
)
def test_a_missing_right_says_where_it_is_to_be_granted(resource: AnyResource, namespace: str, where: str) -> None:
    sentence = forbidden_sentence(call("apply", resource, namespace, ""))
    assert where in sentence
    assert 'verbs: ["patch"]' in sentence


@pytest.mark.parametrize(
    ("error", "text"),
    [(TimeoutError(), "did not answer in time"), (ConnectionResetError("reset"), "the connection to hub:6443 broke")],
)
def test_no_answer_at_all_is_tried_again(error: Exception, text: str) -> None:
    raised = error_from_exception(call(), error)
    assert isinstance(raised, Unreachable)
    assert text in raised.sentence
    assert type(error).__name__ in raised.detail
