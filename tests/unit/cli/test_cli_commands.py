"""What the command line says: help, and one sentence with the right exit code for every bad input."""

from __future__ import annotations

import io
import json
import os
import re
import socket
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import pytest

from fairlead.cli import run as cli
from fairlead.cli.main import VERBS, app
from fairlead.cli.run import codes_of

COMMANDS = [
    [], ["crds"], ["apiserver"], ["hub"], ["agent"], ["standalone"], ["tenant"], ["tenant", "add"], ["tenant", "list"],
    ["tenant", "rotate"],
    ["tenant", "remove"], ["status"], ["demo"], ["version"], ["regions"], ["plan"], ["explain"], ["pause"], ["resume"],
    ["demo", "http"], ["repair"], ["drift"], ["gc"], ["route"], ["convert"],
]  # fmt: skip


class Result(NamedTuple):
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


def run(*arguments: str, **environ: str) -> Result:
    """Run the command line inside this process: no start-up time, and nothing that logs."""
    out, problem = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))
    with (
        patch.object(sys, "argv", ["fairlead", *arguments]),
        patch.dict(os.environ, {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb", **environ}),
        patch.object(cli._Verbosity, "on", False),
        redirect_stdout(out),
        redirect_stderr(problem),
    ):
        code = cli.run_app(app)
    said = [stream.buffer.getvalue().decode() for stream in (out, problem)]  # pyright: ignore[reportAttributeAccessIssue]
    return Result(code, *said)


def process(*arguments: str) -> Result:
    """Run the command line as a process of its own: for what sets up logging, and for what is really installed."""
    done = subprocess.run(
        [sys.executable, "-m", "fairlead.cli.main", *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    return Result(done.returncode, done.stdout, done.stderr)


@pytest.mark.req("X-21")
@pytest.mark.parametrize("command", [*COMMANDS, ["demo", "regions"]], ids=" ".join)
def test_help_names_no_type_of_python(command: list[str]) -> None:
    shown = run(*command, "--help").stdout
    assert re.findall(r"<(?:bool|str|int|float|path|uuid|list)[^>]*>", shown) == []
    assert "--help" in shown


@pytest.mark.req("X-21", "X-47")
def test_only_the_readme_states_the_length_of_the_demo() -> None:
    assert "minute" not in run("demo", "--help").stdout + run("--help").stdout
    readme = (Path(__file__).parents[3] / "README.md").read_text()
    assert readme.count("about a minute") == 1


@pytest.mark.req("X-21")
def test_an_output_that_is_none_is_one_plain_sentence() -> None:
    result = run("status", "-o", "xml")
    assert (result.returncode, "Value error" in result.stderr) == (2, False)
    assert "'xml' is not one of 'table', 'wide', 'json', 'yaml', 'name'" in result.stderr


def kubeconfig(directory: Path, server: str) -> str:
    path = directory / "kubeconfig"
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": {"server": server}}],
                "users": [{"name": "u", "user": {"token": "secret-token-of-the-test"}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        )
    )
    return str(path)


def sentence(result: Result, code: int) -> str:
    """Return the text on stderr, after checking that it is one sentence without a traceback or secret."""
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    assert "secret-token-of-the-test" not in result.stderr + result.stdout
    assert result.stderr.count("fairlead: ") == 1
    return result.stderr


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_is_short_and_has_the_exit_codes(command: list[str]) -> None:
    assert len(run(*command, "--help", COLUMNS="80").stdout.splitlines()) <= 60
    result = run(*command, "--help")
    assert result.returncode == 0
    assert "Usage" in result.stdout
    if command != ["tenant"]:
        shown = " ".join(result.stdout.replace("│", " ").split())
        assert " · ".join(f"{code} {text}" for code, text in codes_of(" ".join(command)).items()) in shown


def test_every_command_of_the_documentation_is_there() -> None:
    help_text = run("--help").stdout
    for command in COMMANDS[1:]:
        assert command[0] in help_text


def test_the_installed_command_line_says_its_version() -> None:
    assert json.loads(process("version", "-o", "json").stdout)["client"].startswith("v")


def test_version_as_a_flag_says_the_same_as_the_command() -> None:
    assert run("--version") == run("version")
    assert run("--version").stdout.startswith("client: v")


def test_help_has_a_line_for_each_command_under_the_heading_of_what_it_is_for() -> None:
    lines = run("--help", COLUMNS="80").stdout.splitlines()
    titles = ("Run", "Look", "Operate", "Set up")
    at = [next(number for number, line in enumerate(lines) if line.startswith(f"╭─ {title} ")) for title in titles]
    assert at == sorted(at)
    named = [line.split()[1] for line in lines[at[0] :] if line.startswith("│ ") and line[2] != " "]
    assert named == list(VERBS)
    assert len([line for line in lines[at[0] :] if line.startswith("│")]) == len(named), "one line each"


@pytest.mark.parametrize("verb", ["plan", "explain", "pause", "resume"])
def test_an_object_that_cannot_be_meant_is_a_usage_error(verb: str, tmp_path: Path) -> None:
    said = sentence(run(verb, "lb/a/b/c", "--kubeconfig", str(tmp_path / "none")), 2)
    more = ", ingress, gateway, listenerset, httproute, grpcroute, tlsroute, tcproute and udproute"
    explained = more if verb == "explain" else " and class"
    of_hub = "svc, lb, tcplb, httplb, gsvc, hostname"
    kinds = f"{of_hub}, class" if verb == "explain" else of_hub
    assert f"'lb/a/b/c' is not KIND/NAME; kinds are {kinds}{explained}, as in svc/web" in said


def test_a_group_is_looked_at_by_its_load_balancers(tmp_path: Path) -> None:
    said = sentence(run("explain", "bg/web", "--kubeconfig", str(tmp_path / "none")), 2)
    assert "'bg/web' is a BackendGroup; name a load balancer that it is on, as in lb/shared" in said


@pytest.mark.parametrize(
    "verb",
    [("plan",), ("explain", "lb/x"), ("pause", "lb/x"), ("drift",), ("gc",), ("route", "GET", "http://a.b/")],
    ids=" ".join,
)
def test_the_verbs_say_in_one_sentence_why_they_cannot_look(verb: tuple[str, ...], tmp_path: Path) -> None:
    missing = sentence(run(*verb, "--kubeconfig", str(tmp_path / "none")), 2)
    assert "does not exist" in missing
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        config = kubeconfig(tmp_path, f"http://127.0.0.1:{taken.getsockname()[1]}")
        assert "refuses connections" in sentence(process(*verb, "--kubeconfig", config), 3)


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys; from fairlead.cli.main import VERBS, command_of; "
        "[command_of(verb) for verb in VERBS]; "
        "print(sorted({'aiohttp', 'grpc', 'kubernetes', 'msgspec', 'structlog', 'yaml'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_crds_are_yaml_that_kubectl_takes() -> None:
    import yaml

    documents = list(yaml.safe_load_all(run("crds").stdout))
    assert {crd["kind"] for crd in documents} == {"CustomResourceDefinition"}
    assert "tcploadbalancers.fairlead.dev" in {crd["metadata"]["name"] for crd in documents}


def test_no_arguments_show_help_and_a_bad_flag_is_a_usage_error() -> None:
    assert "Usage" in run().stdout + run().stderr
    bad = run("hub", "--no-such-flag")
    assert bad.returncode == 2
    assert "No such option" in bad.stderr


@pytest.mark.parametrize("command", [("status",), ("tenant", "add", "east"), ("version",)], ids=" ".join)
def test_a_missing_kubeconfig_is_named(command: tuple[str, ...], tmp_path: Path) -> None:
    said = sentence(run(*command, "--kubeconfig", str(tmp_path / "none")), 2)
    assert str(tmp_path / "none") in said
    assert "does not exist" in said


@pytest.mark.parametrize("content", ["", "[", "just words", "clusters: {}"], ids=["empty", "yaml", "text", "shape"])
def test_a_broken_kubeconfig_is_named(content: str, tmp_path: Path) -> None:
    path = tmp_path / "broken"
    path.write_text(content)
    assert str(path) in sentence(run("status", "--kubeconfig", str(path)), 2)


def test_no_kubeconfig_at_all_says_where_it_was_looked_for(tmp_path: Path) -> None:
    said = sentence(run("status", HOME=str(tmp_path), KUBECONFIG="", KUBERNETES_SERVICE_HOST=""), 2)
    assert "--kubeconfig" in said


@pytest.mark.parametrize("command", [("status",), ("tenant", "add", "east"), ("version",)], ids=" ".join)
def test_an_unreachable_api_has_its_own_exit_code(command: tuple[str, ...], tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        port = taken.getsockname()[1]
        said = sentence(run(*command, "--kubeconfig", kubeconfig(tmp_path, f"http://127.0.0.1:{port}")), 3)
    assert "refuses connections" in said


@pytest.mark.parametrize(
    ("pool", "why"),
    [
        ("300.1.2.3/8", "is not a CIDR such as 192.0.2.0/24 or 2001:db8:1::/64"),
        ("fd00::/64", "not on this machine"),
        ("127.1.0.0/24,127.1.0.128/25", "overlaps"),
        (" , ", "empty"),
        ("203.0.113.0/24", "not on this machine"),
    ],
)
def test_a_bad_address_pool_is_an_error_before_anything_is_started(pool: str, why: str, tmp_path: Path) -> None:
    said = sentence(run("hub", "--address-pool", pool, "--kubeconfig", str(tmp_path / "none")), 2)
    assert "--address-pool" in said
    assert why in said
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("flag", ["--listen", "--metrics"])
@pytest.mark.parametrize("value", ["nonsense", "127.0.0.1:70000", "127.0.0.1:"])
def test_the_error_of_a_bad_address_names_its_flag(flag: str, value: str, tmp_path: Path) -> None:
    said = sentence(run("standalone", "--data-dir", str(tmp_path / "d"), flag, value), 2)
    assert flag in said
    assert repr(value) in said


def test_a_port_in_use_is_an_error(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        said = sentence(process("apiserver", "--data-dir", str(tmp_path / "d"), "--listen", place), 2)
    assert place in said


def test_a_data_directory_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    said = sentence(process("apiserver", "--data-dir", str(file / "below")), 2)
    assert str(file / "below") in said


@pytest.mark.parametrize("name", ["East", "a/b", "a.b", "-a", "a" * 64, ""])
def test_a_tenant_name_that_kubernetes_would_refuse_is_refused_first(name: str, tmp_path: Path) -> None:
    config = kubeconfig(tmp_path, "http://127.0.0.1:1")
    said = sentence(run("tenant", "add", "--kubeconfig", config, "--", name), 2)
    assert "NAME" in said


@pytest.mark.parametrize(
    ("flag", "value"), [("--server", "hub:6443"), ("--server", "nonsense"), ("--region", "../x"), ("--region", "eu_1")]
)
def test_a_tenant_that_could_never_be_used_is_refused_first(flag: str, value: str, tmp_path: Path) -> None:
    config = kubeconfig(tmp_path, "http://127.0.0.1:1")
    assert flag in sentence(run("tenant", "add", "--kubeconfig", config, flag, value, "east"), 2)


@pytest.mark.parametrize("command", [("hub",), ("agent", "--tenant", "east", "--hub-kubeconfig", "x")], ids=" ".join)
@pytest.mark.parametrize("region", ["eu_central", "eu central", "-eu", "eu.", "eu..x", "e" * 64])
def test_an_invalid_region_name_is_rejected_before_reading(command: tuple[str, ...], region: str) -> None:
    said = sentence(run(*command, f"--region={region}"), 2)
    assert f"--region: {region!r} " in said
    assert "letters, digits, dashes and dots" in said


@pytest.mark.parametrize("command", [("status", "--wait"), ("repair", "lb/x"), ("tenant", "remove", "x")], ids=" ".join)
def test_a_bad_duration_is_an_error(command: tuple[str, ...], tmp_path: Path) -> None:
    typed = (*command, "--timeout", "soon", "--kubeconfig", kubeconfig(tmp_path, "http://[::1]:1"))
    assert "--timeout: 'soon' is not a duration such as 90s or 10m" in sentence(run(*typed), 2)


def test_usage_names_arguments_as_kubectl_does() -> None:
    shown = [run(*command, "--help").stdout for command in (["status"], ["route"], ["tenant", "add"], ["convert"])]
    lines = [next(line.strip() for line in each.splitlines() if "Usage:" in line) for each in shown]
    assert [line.partition("[OPTIONS] ")[2] for line in lines] == ["[NAME]...", "METHOD URL", "NAME", "[FILE]..."]


def test_a_file_that_cannot_be_written_is_named_as_it_was_typed(tmp_path: Path) -> None:
    config, path = kubeconfig(tmp_path, "http://[::1]:1"), tmp_path / "none" / "x.tgz"
    assert f"--output: {path.parent} does not exist; create it" in sentence(
        process("collect", "--kubeconfig", config, "--output", str(path)), 2
    )


def test_verbose_adds_the_detail(tmp_path: Path) -> None:
    config = kubeconfig(tmp_path, "http://127.0.0.1:1")
    assert "detail:" not in run("version", "--kubeconfig", config).stderr
    assert "detail:" in run("version", "--kubeconfig", config, "--verbose").stderr


@pytest.mark.req("X-15")
@pytest.mark.parametrize("command", ["standalone", "apiserver", "hub", "agent", "demo"])
def test_an_empty_data_dir_is_refused_before_anything_is_written(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    more = ("--tenant", "east", "--hub-kubeconfig", "none") if command == "agent" else ()
    result = run(command, *more, "--data-dir", "")
    assert result.returncode == 2
    assert "'--data-dir': the value is empty, often an unset variable; name a directory" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.req("X-30")
def test_top_shows_one_kind_of_parts() -> None:
    result = run("top", "--backends", "--routes")
    assert result.returncode == 2
    assert "--backends or --routes, not both" in result.stderr


def test_a_foreign_address_is_not_said_to_be_in_use(tmp_path: Path) -> None:
    said = sentence(run("apiserver", "--data-dir", str(tmp_path / "d"), "--listen", "192.0.2.1:6443"), 2)
    assert "The address 192.0.2.1 cannot be listened on: this machine does not have it" in said
    assert "stop what uses it" not in said


def test_a_bundle_into_a_missing_directory_is_rejected_before_reading(tmp_path: Path) -> None:
    where, missing = kubeconfig(tmp_path, "https://127.0.0.1:1"), tmp_path / "missing"
    said = sentence(run("collect", "--kubeconfig", where, "--output", str(missing / "b.tar.gz")), 2)
    assert said == f"fairlead: --output: {missing} does not exist; create it, or name another file.\n"
