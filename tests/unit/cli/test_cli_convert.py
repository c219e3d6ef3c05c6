"""``fairlead convert`` as people type it: what is on stdout and stderr, and the exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from fairlead.cli.main import app
from fairlead.cli.run import run_app

PLAIN = """
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, annotations: {%s}}
spec:
  ingressClassName: nginx
  rules:
    - host: a.example.com
      http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}
"""
LOST = r'nginx.ingress.kubernetes.io/auth-url: "x", nginx.ingress.kubernetes.io/new-\e[2J: "x"'


class Typed:
    """Runs the verb over a file, inside this process."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._file = directory / "in.yaml"
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *options: str, annotations: str = "") -> tuple[int, str, str]:
        self._file.write_text(PLAIN % annotations)
        self._monkeypatch.setattr("sys.argv", ["fairlead", "convert", str(self._file), *options])
        code = run_app(app)
        printed = self._capsys.readouterr()
        return code, printed.out, printed.err


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    return Typed(tmp_path, monkeypatch, capsys)


@pytest.mark.req("E-35")
def test_lost_features_are_on_stderr_and_in_the_exit_code(typed: Typed) -> None:
    code, out, problem = typed()
    assert (code, problem) == (0, "")
    assert [each["kind"] for each in yaml.safe_load_all(out)] == ["Gateway", "HTTPRoute"]
    code, out, problem = typed(annotations=LOST.replace(r"-\e[2J", "-thing"))
    assert code == 4
    assert problem.startswith("lost: Ingress default/web: auth-url: ")
    assert "# lost: Ingress default/web: auth-url: " in out
    assert "lost" not in yaml.safe_dump(list(yaml.safe_load_all(out)))


def test_options_choose_the_gateway_its_class_and_the_ingresses(typed: Typed) -> None:
    options = ("--gateway", "edge/main", "--gateway-class", "other", "-n", "shop", "--ingress-class", "nginx")
    code, out, _ = typed(*options, "-o", "json")
    gateway, route = json.loads(out)
    assert code == 0
    assert (gateway["metadata"], gateway["spec"]["gatewayClassName"]) == (
        {"name": "main", "namespace": "edge"},
        "other",
    )
    assert route["metadata"]["namespace"] == "shop"
    assert typed("-o", "name")[1].splitlines() == [
        "gateways.gateway.networking.k8s.io/default/ingress",
        "httproutes.gateway.networking.k8s.io/default/web",
    ]


@pytest.mark.parametrize(
    ("options", "part"),
    [(("--ingress-class", "none"), "There is no Ingress of class none in"), (("--gateway", "/x"), "NAMESPACE/NAME"),
     (("/does/not/exist",), "No such file")],
)  # fmt: skip
def test_what_cannot_be_meant_is_one_sentence(typed: Typed, options: tuple[str, ...], part: str) -> None:
    code, out, problem = typed(*options)
    assert code in (1, 2)
    assert out == ""
    assert part in problem


def test_nothing_of_the_input_acts_on_the_terminal(typed: Typed) -> None:
    code, out, problem = typed(annotations=LOST.replace(r"new-\e[2J", "new").replace('"x"', r'"\e[2J"'))
    assert code == 4
    assert "\x1b" not in out + problem
