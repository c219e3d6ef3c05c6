"""Parameters of a class and of a load balancer: every mistake names its field."""

from __future__ import annotations

import msgspec
import pytest

from fairlead.errors import BadConfiguration
from fairlead.model.desired import FrontendSpec, Listener, Owner
from fairlead.model.health import HealthCheck, OutlierDetection
from fairlead.model.keys import Family, LoadBalancerKey, Protocol, WantedFamilies
from fairlead.providers.haproxy.settings import settings_from_spec

KEY = LoadBalancerKey("LoadBalancer", "shop", "shared")


@pytest.mark.parametrize(
    ("parameters", "listeners", "message"),
    [
        ({}, (80,), "parameters.socket is missing"),
        ({"socket": "admin.sock", "backend": "b"}, (80,), "absolute path"),
        ({"socket": "/" + "x" * 120, "backend": "b"}, (80,), "107 bytes"),
        ({"socket": "/s"}, (80,), "existing.backend is missing"),
        ({"socket": "/s", "backend": "b"}, (80, 443), r"existing\.backend\.80 is missing"),
        ({"socket": "/s", "backend": "b;shutdown"}, (80,), "cannot be the name"),
        ({"socket": "/s", "backend": "b\nquit"}, (80,), "cannot be the name"),
        ({"socket": "/s", "backend": "b", "drainTimeout": "soon"}, (80,), "drainTimeout"),
        (
            {"socket": "/s", "backend": "b", "sockt": "/t"},
            (80,),
            r"parameters\.sockt is unknown .* did you mean socket",
        ),
        (
            {"socket": "/s", "backend": "{shop}"},
            (80,),
            r"'\{shop\}' is unknown; .* \{member\}, \{hubNamespace\}, \{name",
        ),
        ({"socket": "/s", "backend": "b{"}, (80,), "cannot be the name"),
    ],
)
def test_mistakes_name_the_field(parameters: dict[str, str], listeners: tuple[int, ...], message: str) -> None:
    spec = FrontendSpec(KEY, "group", tuple(map(Listener, listeners)), parameters=parameters)
    with pytest.raises(BadConfiguration, match=message):
        settings_from_spec(spec)


def test_a_service_has_no_field_for_its_backend_so_its_class_is_named() -> None:
    key = LoadBalancerKey("TCPLoadBalancer", "tenant-east", "shop.web")
    spec = FrontendSpec(key, "group", (Listener(80),), parameters={"socket": "/s"})
    with pytest.raises(BadConfiguration, match=r"parameters\.backend of the class is missing"):
        settings_from_spec(spec)


@pytest.mark.req("L-10")
def test_one_class_serves_many_services_by_placeholders() -> None:
    owner = Owner(member="east", kind="Service", namespace="shop", name="web")
    parameters = {"socket": "/s", "backend": "{member}.{namespace}-{name}:{port}", "backend.443": "{name}-tls"}
    spec = FrontendSpec(KEY, "group", (Listener(80), Listener(443)), parameters=parameters, owner=owner)
    settings = settings_from_spec(spec)
    assert list(settings.backends.values()) == ["east.shop-web:80", "web-tls"]
    retired = Listener(8080).key
    assert settings.backend_of(retired, removal=False) == ""
    assert settings.backend_of(retired, removal=True) == "east.shop-web:8080"
    # What was asked for once is where it is, whatever its owner is called by then.
    anonymous = settings_from_spec(msgspec.structs.replace(spec, owner=Owner()))
    assert anonymous.with_places(settings.info).backends == settings.backends


def test_each_listener_has_its_backend_and_udp_has_none() -> None:
    parameters = {"socket": "/s", "backend.80": "plain", "backend.443": "tls"}
    spec = FrontendSpec(KEY, "group", (Listener(80), Listener(443)), parameters=parameters)
    assert list(settings_from_spec(spec).backends.values()) == ["plain", "tls"]
    udp = msgspec.structs.replace(spec, listeners=(Listener(53, Protocol.UDP),))
    with pytest.raises(BadConfiguration, match="TCP only"):
        settings_from_spec(udp)


@pytest.mark.req("K-58")
@pytest.mark.parametrize(
    ("address", "families", "shown"),
    [
        ("192.0.2.8", (), ("192.0.2.8",)),
        ("2001:DB8::8", (), ("2001:db8::8",)),
        ("lb.example.com", (), ("lb.example.com",)),
        ("192.0.2.8, 2001:db8::8", (), ("192.0.2.8",)),
        ("192.0.2.8,2001:db8::8", ("IPv6",), ("2001:db8::8",)),
        ("192.0.2.8,2001:db8::8", ("IPv6", "IPv4"), ("2001:db8::8", "192.0.2.8")),
        ("", ("IPv4",), ()),
    ],
)
def test_the_addresses_of_a_class_in_the_order_of_the_families(
    address: str, families: tuple[Family, ...], shown: tuple[str, ...]
) -> None:
    parameters = {"socket": "/s", "backend": "b", "address": address}
    spec = FrontendSpec(KEY, "group", (Listener(80),), parameters=parameters, families=WantedFamilies(families))
    assert settings_from_spec(spec).addresses == shown


OUTLIER = FrontendSpec(
    KEY,
    "group",
    (Listener(80),),
    parameters={"socket": "/s", "backend": "b"},
    health_check=HealthCheck(interval_s=2.0, port=8080),
    outlier_detection=OutlierDetection(consecutive_5xx=5),
)


@pytest.mark.req("F-11", "F-13")
def test_checks_at_another_port_and_failing_connections_are_options_of_servers() -> None:
    options = settings_from_spec(OUTLIER).server_options("")
    assert options == "check inter 2000ms fall 2 rise 1 port 8080 observe layer4 error-limit 5 on-error mark-down"
    off = msgspec.structs.replace(OUTLIER, outlier_detection=OutlierDetection(5, max_ejection_percent=0))
    assert "observe" not in settings_from_spec(off).server_options("")


@pytest.mark.req("F-13")
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"outlier_detection": OutlierDetection(5, 3)}, "consecutiveGatewayErrors has no meaning"),
        ({"outlier_detection": OutlierDetection(5, ejection_time="5s")}, "ejectionTime has no meaning"),
        ({"outlier_detection": OutlierDetection(5, max_ejection_percent=9)}, "maxEjectionPercent has no meaning"),
        ({"health_check": None}, "needs health checks"),
    ],
)
def test_outlier_detection_that_haproxy_has_not_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(BadConfiguration, match=message):
        settings_from_spec(msgspec.structs.replace(OUTLIER, **fields))
