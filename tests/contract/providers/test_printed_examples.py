"""What the how-tos print is what runs: the driver, the provider with its entry point, and its contract test."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fairlead.errors import Retry
from fairlead.model.change import DONE, Action, BackendFacts, OutcomeStatus, Reason, TargetChange
from fairlead.model.desired import FrontendSpec, Listener, Target
from fairlead.model.keys import LoadBalancerKey, TargetKey
from fairlead.providers.webhook.provider import WebhookProvider
from tests.contract.providers.provider_processes import DRIVER, ExampleDriver

HOW_TO = Path(__file__).parents[3] / "docs" / "how-to"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", (HOW_TO / page).read_text(), re.DOTALL | re.MULTILINE)


def printed_files(page: str) -> dict[str, str]:
    """Return the blocks that have a file name on the line before."""
    blocks = re.findall(r"^`([\w.]+)`:\n\n```\w+\n(.*?)^```$", (HOW_TO / page).read_text(), re.DOTALL | re.MULTILINE)
    return dict(blocks)


def test_the_page_prints_the_example() -> None:
    assert blocks("write-a-driver.md", "python") == [DRIVER.read_text()]


async def test_the_printed_driver_works(tmp_path: Path) -> None:
    """Every hook once, from create to delete; the rest of the contract is in test_contract_webhook."""
    source = tmp_path / "driver.py"
    source.write_text(blocks("write-a-driver.md", "python")[0])
    driver = ExampleDriver(tmp_path, source=source)
    webhook = WebhookProvider()
    key = LoadBalancerKey("LoadBalancer", "shop", "shared")
    parameters = {"url": driver.url, "name": "shared", "verify": "true"}
    spec = FrontendSpec(key, "group", (Listener(80),), parameters=parameters)
    pod = {
        "metadata": {"namespace": "shop", "name": "web-1", "labels": {"keep": "me"}},
        "status": {"podIP": "10.0.0.7"},
    }
    target = Target(TargetKey("10.0.0.7", 8080))
    facts = BackendFacts(origin={"podBackend": {"pod": pod, "port": {"portNumber": 8080}}}, parameters={"weight": "3"})
    change = TargetChange(key, Listener(80).key, target, Action.REGISTER, Reason.NEW, facts=facts)
    try:
        await webhook.healthy(parameters)
        await webhook.validate(spec)
        await webhook.validate_backends(spec, backend_type="Pod", parameters={"weight": "3"})
        assert (await webhook.ensure(spec)).info == {"name": "shared"}
        await webhook.ensure(spec)
        (generated,) = await webhook.apply([change])
        assert (generated.status, generated.generated_address) == (OutcomeStatus.RUNNING, "10.0.0.7:8080")
        assert await webhook.apply([change]) == [DONE]
        assert json.loads(driver.file.read_text())["shared"]["backends"] == {"10.0.0.7:8080": {"weight": "3"}}
        assert await webhook.judge_pods(parameters, [pod]) == {("shop", "web-1")}
        await webhook.delete(key)
        assert json.loads(driver.file.read_text()) == {}
        nameless = FrontendSpec(key, "group", (Listener(80),), parameters={"url": driver.url})
        with pytest.raises(Retry, match="lbSpec needs a name"):
            await webhook.ensure(nameless)
    finally:
        await webhook.close()
        driver.stop()


def test_the_printed_provider_keeps_the_contract(tmp_path: Path) -> None:
    """As printed, in a process of its own, found by its entry point."""
    files = printed_files("write-a-provider.md")
    assert set(files) == {"fairlead_files.py", "pyproject.toml", "test_contract.py"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    project = tomllib.loads(files["pyproject.toml"])["project"]
    # What an installer makes of the printed pyproject.toml, without a package index.
    info = tmp_path / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    (info / "entry_points.txt").write_text(
        "".join(
            f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
            for group, entries in project["entry-points"].items()
        )
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    environment.pop("PYTEST_ADDOPTS", None)
    loaded = subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlib.metadata import entry_points\n"
            "(found,) = entry_points(group='fairlead.providers', name='files')\n"
            "print(type(found.load()()).__name__)",
        ],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert loaded.stdout.strip() == "FileProvider"
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "test_contract.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"^1[5-9] passed|^[2-9]\d passed", ran.stdout, re.MULTILINE), ran.stdout
