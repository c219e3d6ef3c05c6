"""URLs."""

import pytest

from podless.http.info import parse


@pytest.mark.parametrize(
    ("method", "path", "query", "expected"),
    [
        ("GET", "/api/v1/pods", {}, ("list", "", "v1", "", "pods", "", "")),
        ("GET", "/api/v1/pods", {"watch": "true"}, ("watch", "", "v1", "", "pods", "", "")),
        ("GET", "/api/v1/watch/namespaces/n/pods", {}, ("watch", "", "v1", "n", "pods", "", "")),
        (
            "GET",
            "/apis/apps/v1/namespaces/n/deployments/d/status",
            {},
            ("get", "apps", "v1", "n", "deployments", "d", "status"),
        ),
        ("PUT", "/api/v1/namespaces/n/status", {}, ("update", "", "v1", "", "namespaces", "n", "status")),
        ("DELETE", "/api/v1/namespaces/n/pods", {}, ("deletecollection", "", "v1", "n", "pods", "", "")),
        ("POST", "/api/v1/namespaces", {}, ("create", "", "v1", "", "namespaces", "", "")),
        ("GET", "/apis/apps/v1", {}, ("get", "", "", "", "", "", "")),
    ],
)
def test_urls(method: str, path: str, query: dict[str, str], expected: tuple[str, ...]) -> None:
    info = parse(method, path, query)  # type: ignore[arg-type]
    assert (info.verb, *info[2:]) == expected
