"""An API server accepts the printed objects: parts that it would refuse are left out, and listed."""

from __future__ import annotations

from typing import Any

import pytest
from convert_builders import GATEWAY, convert, ingress, path, remarks, routes

from fairlead.convert.ingresses import body_of, convert_ingresses
from fairlead.errors import BadConfiguration
from podless.offline import gateway_definitions, refusals

HOST = "a.example.com"


@pytest.mark.req("L7-5")
@pytest.mark.parametrize(
    ("annotations", "hosts"),
    [
        ({"server_alias": "my_host,*"}, {HOST: [path()]}),
        ({"upstream_vhost": "My_Host"}, {HOST: [path("/a"), path("/b")]}),
        ({"permanent_redirect": "https://my_host/x"}, {HOST: [path()]}),
        ({}, {HOST: [path("//x"), path()]}),
        ({}, {HOST: [path("/a{id}"), path()]}),
        ({}, {HOST: [path("/" + "x" * 1_025), path()]}),
        ({"rewrite_target": "/" + "x" * 1_025}, {HOST: [path()]}),
        ({"rewrite_target": "/"}, {HOST: [path("/" + "x" * 1_024)]}),
        ({"affinity": "cookie", "session_cookie_name": "x" * 200}, {HOST: [path()]}),
        ({"enable_cors": "true", "cors_expose_headers": "a b"}, {HOST: [path()]}),
        ({"backend_protocol": "HTTPS", "proxy_ssl_name": "my_host"}, {HOST: [path()]}),
        ({}, {"under_score.example.com": [path()], HOST: [path()]}),
        ({"permanent_redirect": "https://b.org", "permanent_redirect_code": "999"}, {HOST: [path()]}),
        ({"proxy_next_upstream": "http_999"}, {HOST: [path()]}),
    ],
)
def test_what_an_api_server_refuses_is_left_out_and_listed(
    annotations: dict[str, Any], hosts: dict[str, list[dict[str, Any]]]
) -> None:
    conversion = convert(ingress(hosts=hosts, tls=[{"hosts": list(hosts), "secretName": "s"}], **annotations))
    assert not conversion.lossless
    assert [refusals(body_of(resource, obj)) for resource, obj in conversion.objects] == [[]] * len(conversion.objects)


def test_the_other_paths_and_hostnames_of_a_route_stay() -> None:
    conversion = convert(ingress(hosts={HOST: [path("//x"), path("/good")]}, server_alias="my_host,b.org"))
    (route,) = routes(conversion).values()
    assert route.spec.hostnames == [HOST, "b.org"]
    assert [match.path.value for rule in route.spec.rules or () for match in rule.matches or () if match.path] == [
        "/good"
    ]
    assert sorted(each.partition(":")[0] for each in remarks(conversion)) == ["hostname my_host", f"path {HOST}//x"]


@pytest.mark.parametrize("name", ["", "x" * 300])
def test_the_name_of_a_class_that_is_refused_is_an_error(name: str) -> None:
    with pytest.raises(BadConfiguration, match="Gateway default/ingress"):
        convert_ingresses([ingress()], [], gateway=GATEWAY, class_name=name)


def test_a_field_that_a_kind_does_not_have_is_refused() -> None:
    (crd,) = [each for each in gateway_definitions() if each["spec"]["names"]["kind"] == "HTTPRoute"]
    assert crd["metadata"]["annotations"]["gateway.networking.k8s.io/channel"] == "experimental"
    route = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
             "metadata": {"name": "a", "namespace": "b"}, "spec": {"ruels": []}}  # fmt: skip
    assert [each.field for each in refusals(route)] == ["spec.ruels"]
