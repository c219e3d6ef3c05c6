"""Secrets are planted in every place that comes to mind; none of them is left, and what is needed is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fairlead.doctor.bundle import REMOVED, redacted_object, redacted_text

pytestmark = pytest.mark.req("OP-6")

JWT = "eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.eyJzdWIiOiJzeXN0ZW0ifQ.c2lnbmF0dXJlLXRoYXQtaXMtbG9uZw"
PEM = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIIg2\nabcdef\n-----END EC PRIVATE KEY-----"
KEY = "AKIAIOSFODNN7EXAMPLEwJalrXUtnFEMIK7MDENGbPxRfiCY"


@pytest.mark.parametrize(
    "text",
    [
        f"Authorization: Bearer {JWT}",
        "authorization: Basic aHVudGVyMjpodW50ZXIy",
        f"signing in with {JWT} failed",
        "GET https://admin:hunter2@driver.example.com/v1",
        "--password=hunter2 --user=x",
        "password: 'hunter2'",
        "ran: driver --token hunter2 --verbose",
        "ran: driver --password 'hunter2 hunter2'",
        'ran: driver --secret "hunter2"',
        "ran: driver --client-secret  hunter2",
        "ran: driver -password hunter2",
        '["driver", "--token", "hunter2"]',
        "['driver', '--api-key', 'hunter2']",
        '{"token": "hunter2"}',
        "HAPROXY_STATS_PASSWORD=hunter2",
        "api-key=hunter2&user=x",
        "x-api-key: hunter2",
        "client_secret = hunter2",
        "Set-Cookie: hunter2; Path=/",
        f"the key {KEY} was refused",
        PEM,
        PEM[:50],
        f"prefix\n{PEM}\nsuffix",
    ],
)
def test_text_is_left_without_its_secret(text: str) -> None:
    left = redacted_text(text)
    assert REMOVED in left
    for secret in ("hunter2", JWT, "aHVudGVy", KEY, "MHcCAQEE"):
        assert secret not in left


@pytest.mark.parametrize(
    "text",
    [
        'fairlead_hub_load_balancers{programmed="True",reason="Programmed"} 3.0',
        "load balancer tenant-east/default.web serves at 192.0.2.1:80",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "uid 6f8a1b5e-2f3c-4b8e-9a57-2f1d3c4b5a69 at 2030-01-01T00:00:00Z",
        "tcploadbalancers.fairlead.dev default.a-service-with-quite-a-long-name-indeed-that-goes-on",
        "https://hub.example.com:6443/apis/fairlead.dev/v1alpha1/tcploadbalancers",
        "-----BEGIN CERTIFICATE-----",
        "--token-file /var/run/token --verbose",
        "--token --verbose",
    ],
)
def test_needed_objects_are_kept(text: str) -> None:
    assert redacted_text(text) == text


def planted(secret: str) -> dict[str, Any]:
    """Return an object with a secret in every place that an object has."""
    return {
        "kind": "Service",
        "metadata": {
            "name": "web",
            "annotations": {
                "example.com/database": secret,
                "kubectl.kubernetes.io/last-applied-configuration": json.dumps({"password": secret}),
                "fairlead.dev/address-request": "192.0.2.1",
            },
            "managedFields": [{"manager": secret}],
        },
        "spec": {
            "parameters": {"url": f"https://user:{secret}@driver", "password": secret, "credentials": secret},
            "clientSecret": secret,
            "apiKeys": [secret, secret],
            "template": {
                "spec": {
                    "containers": [
                        {
                            "name": "c",
                            "env": [{"name": "HARMLESS", "value": secret}, {"name": "TOKEN", "value": secret}],
                            "args": [f"--token={secret}", f"--password={secret}", "--token", secret],
                        }
                    ],
                    "volumes": [{"secret": {"secretName": "kept"}}],
                }
            },
            "filters": [{"requestHeaderModifier": {"set": [{"name": "X-Anything", "value": secret}]}}],
        },
        "status": {"conditions": [{"message": f"the driver says: wrong token={secret}"}]},
    }


def test_no_place_of_an_object_keeps_a_secret() -> None:
    left = redacted_object(planted("hunter2"))
    text = json.dumps(left)
    assert "hunter2" not in text
    assert left["metadata"]["annotations"]["fairlead.dev/address-request"] == "192.0.2.1"
    assert left["metadata"]["annotations"]["example.com/database"] == REMOVED
    assert left["spec"]["template"]["spec"]["volumes"] == [{"secret": {"secretName": "kept"}}]
    assert "managedFields" not in left["metadata"]


@pytest.mark.parametrize("kind", ["Secret", "ConfigMap"])
def test_of_data_only_the_names_of_its_keys_are_kept(kind: str) -> None:
    obj = {"kind": kind, "metadata": {"name": "x"}, "data": {"a": "hunter2"}, "stringData": {"b": "hunter2"}}
    left = redacted_object(obj)
    assert left["data"] == {"a": REMOVED}
    assert left["stringData"] == {"b": REMOVED}


def test_a_config_map_of_ours_is_kept_and_a_secret_of_ours_is_not() -> None:
    labels = {"app.kubernetes.io/managed-by": "fairlead"}
    data = {"hub-1": '{"since":"now","proxies":[]}'}
    own = {"kind": "ConfigMap", "metadata": {"name": "fairlead-proxies", "labels": labels}, "data": data}
    assert redacted_object(own)["data"] == data
    assert redacted_object({**own, "kind": "Secret"})["data"] == {"hub-1": REMOVED}


def test_an_object_without_metadata_is_not_an_error() -> None:
    assert redacted_object({"kind": "x", "metadata": None}) == {"kind": "x", "metadata": {}}


@pytest.mark.parametrize(
    "word",
    ["x", "token", "--token", "--token  ", '--a-token"', "eyJ", "a:b@", "aB1", "://", "-----BEGIN PRIVATE KEY-----"],
)
def test_a_long_text_takes_no_longer_than_its_length(word: str) -> None:
    """A quadratic search of a megabyte would end with this test's own time limit."""
    assert redacted_text(word * ((1 << 20) // len(word))) is not None


@pytest.mark.req("EDGE-07")
@pytest.mark.parametrize(
    "text",
    [
        "proxy_set_header X-Api-Key VALUE;",
        'proxy_set_header  Host "VALUE";',
        "grpc_set_header authorization VALUE;\n",
        "add_header X-Anything VALUE always;",
        "http-request set-header X-Inner VALUE",
        "set $api_key VALUE;",
        "more X-Auth-Token VALUE",
    ],
)
def test_values_of_headers_that_a_proxy_sets_are_removed(text: str) -> None:
    assert "VALUE" not in redacted_text(f"location / {{ {text} }}")
    parameters = {"annotation.nginx.ingress.kubernetes.io/configuration-snippet": text}
    assert "VALUE" not in str(redacted_object({"spec": {"parameters": parameters}}))
    annotations = {"nginx.ingress.kubernetes.io/server-snippet": text, "ingress.kubernetes.io/x": text}
    assert "VALUE" not in str(redacted_object({"metadata": {"annotations": annotations}}))


def test_words_next_to_names_of_secrets_stay() -> None:
    text = "the token expired, and the key of Secret shop/tls is not readable"
    assert redacted_text(text) == text
