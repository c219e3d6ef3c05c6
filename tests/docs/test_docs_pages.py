"""What pages point to exists, what they show is valid, and what they claim has a test."""

from __future__ import annotations

import ast
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
import yaml

from fairlead import __version__
from fairlead.api import kinds
from fairlead.api.meta import KubeObject, Resource
from fairlead.errors import FairleadError
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig, bearer
from fairlead.kube.discovery import install_crds
from podless.server import ApiServer
from tests.docs.docs_console import ROOT, Block, blocks_of, pages

ALL = sorted(
    [*ROOT.glob("*.md"), *(file for top in ("docs", "deploy", "examples") for file in (ROOT / top).rglob("*.md"))]
)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)[^)]*\)")
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
_DRY_RUN = {"dryRun": "All", "fieldValidation": "Strict"}
_FILE = re.compile(r"`((?:src|tests|bench|examples|deploy)/[\w./-]+)`")


def every(files: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("page", files, ids=lambda file: str(file.relative_to(ROOT)))


def prose_of(page: Path) -> str:
    return re.sub(r"(?ms)^\s*```.*?^\s*```$", "", page.read_text(encoding="utf-8"))


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as Markdown renderers make them."""
    titles = re.findall(r"(?m)^#+ (.+)$", prose_of(page))
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_changelog_begins_with_this_version() -> None:
    newest = re.search(r"(?m)^## ([\d.]+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    assert newest is not None
    assert newest[1] == __version__


@every(ALL)
def test_links_lead_somewhere(page: Path) -> None:
    # Text in backquotes, such as the pattern of a field, is not a link.
    for target in _LINK.findall(re.sub(r"`[^`\n]*`", "", prose_of(page))):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{target} does not exist"
        if anchor and there.suffix == ".md":
            assert anchor in anchors_of(there), f"{target}: no such heading"


@every(ALL)
def test_files_that_are_named_exist(page: Path) -> None:
    for name in _FILE.findall(prose_of(page)):
        assert (ROOT / name).exists(), name


@every(ALL)
def test_tests_that_are_named_exist(page: Path) -> None:
    for file, name in _TEST.findall(page.read_text(encoding="utf-8")):
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert name in functions, f"{file} has no {name}"


def test_every_failure_mode_has_a_proof_and_every_proof_a_failure_mode() -> None:
    text = (ROOT / "docs" / "failure-modes.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| **")]
    proofs = [int(number) for number in re.findall(r"(?m)^(\d+)\. `tests/", text)]
    assert proofs == list(range(1, len(proofs) + 1))
    used: set[int] = set()
    for row in rows:
        numbers = {int(number) for number in row[-1].split()}
        assert numbers, row[0]
        used |= numbers
    assert used == set(proofs)


@every(pages())
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"(?m)^([a-z0-9-]+):", (ROOT / "Makefile").read_text(encoding="utf-8")))
    text = page.read_text(encoding="utf-8")
    used = re.findall(r"(?m)^\$? ?make ([a-z0-9-]+)", text) + re.findall(r"`make ([a-z0-9-]+)", text)
    assert set(used) <= targets


@every(pages())
def test_plain_words(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for word in ("—", "TODO", "FIXME", "127.0.0.1:5000"):
        assert word not in text


# --- what is shown ----------------------------------------------------------------------------------------------


def documents() -> Iterator[tuple[str, Any]]:
    """Yield the YAML documents of all pages, by where they stand."""
    for page in ALL:
        for block in blocks_of(page.read_text(encoding="utf-8")):
            if block.language in {"yaml", "yml"}:
                for number, document in enumerate(_parse(page, block)):
                    yield f"{page.relative_to(ROOT)}:{block.line}:{number}", document


def _parse(page: Path, block: Block) -> list[Any]:
    try:
        return list(yaml.safe_load_all(block.text))
    except yaml.YAMLError as error:
        raise AssertionError(f"{page}:{block.line}: {error}") from error


def test_python_is_python() -> None:
    for page in ALL:
        for block in blocks_of(page.read_text(encoding="utf-8")):
            if block.language == "python":
                compile(block.text, f"{page}:{block.line}", "exec", ast.PyCF_ONLY_AST)


@pytest_asyncio.fixture
async def api() -> AsyncIterator[Cluster]:
    """An API server with our kinds."""
    server = ApiServer()
    url = await server.start()
    try:
        async with Cluster(ClusterConfig(server=url, sign_in=bearer(server.admin_token)), name="docs") as cluster:
            assert await install_crds(cluster, kinds.all_crds(), "docs") == []
            yield cluster
    finally:
        await server.stop()


async def test_objects_are_accepted_as_they_stand(api: Cluster) -> None:
    """The API server's schema knows every field, and our own types read them."""
    ours = {(crd["spec"]["group"], crd["spec"]["names"]["kind"]) for crd in kinds.all_crds()}
    checked = 0
    for where, document in documents():
        if not isinstance(document, dict) or "kind" not in document or document["kind"] in {"Config", "List"}:
            continue
        group, _, version = document["apiVersion"].rpartition("/")
        resource = await _resource(api, group, version, document["kind"])
        if resource is None:
            assert (group, document["kind"]) not in ours, where
            continue
        # Whatever namespace the page means: here there is this one.
        namespace = {"namespace": "default"} if resource.namespaced else {}
        body = msgspec.json.encode({**document, "metadata": {**document["metadata"], **namespace}})
        try:
            answer = await api.raw("POST", resource.path(namespace.get("namespace", "")), params=_DRY_RUN, body=body)
        except FairleadError as error:
            raise AssertionError(f"{where}: {error}") from error
        if (wire := _wire_type(group, document["kind"])) is not None:
            msgspec.json.decode(answer, type=wire)
        checked += 1
    assert checked > 5


async def _resource(api: Cluster, group: str, version: str, kind: str) -> Resource[KubeObject] | None:
    try:
        listed = msgspec.json.decode(await api.raw("GET", f"/apis/{group}/{version}" if group else f"/api/{version}"))
    except FairleadError:
        return None
    for item in listed["resources"]:
        if item["kind"] == kind and "/" not in item["name"]:
            return Resource(group, version, kind, item["name"], item["namespaced"], KubeObject)
    return None


def _wire_type(group: str, kind: str) -> type[KubeObject] | None:
    from fairlead.api import kubernetes

    modules = (kinds, kubernetes)
    resources = [resource for module in modules for resource in vars(module).values() if isinstance(resource, Resource)]
    return next((resource.type for resource in resources if (resource.group, resource.kind) == (group, kind)), None)
