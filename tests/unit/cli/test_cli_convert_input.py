"""Which Ingresses and Services files hold, and the sentence for what cannot be read."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from fairlead.cli.convert import read_files
from fairlead.errors import BadConfiguration

INGRESS = """
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, creationTimestamp: 2026-01-01T00:00:00Z}
spec: {rules: [{host: a.b}]}
"""
SERVICE = "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: other}\n"


def test_documents_lists_and_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.yaml").write_text(f"{INGRESS}---\n---\n{SERVICE}---\napiVersion: v1\nkind: Secret\n")
    item = '{"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "x", "namespace": "n"}}'
    monkeypatch.setattr("sys.stdin", io.StringIO(f'{{"kind": "List", "items": [{item}]}}'))
    given = read_files([str(tmp_path / "a.yaml"), "-"], "mine")
    assert [str(each.key) for each in given.ingresses] == ["mine/web", "n/x"]
    assert given.ingresses[0].metadata.creation_timestamp == "2026-01-01T00:00:00Z"
    assert [str(each.key) for each in given.services] == ["other/web"]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("a: [", "is not YAML"),
        ("- 1\n", "not an object with apiVersion and kind"),
        ("apiVersion: extensions/v1beta1\nkind: Ingress\n", "an Ingress of extensions/v1beta1; only networking"),
        ("apiVersion: networking.k8s.io/v1\nkind: Ingress\n", "Ingress has no metadata.name"),
        ("apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: 1}\n", "Ingress 1: "),
        ("kind: Ingress\nmetadata:\n  annotations:\n    a: x\n    a: y\n", "key a is a duplicate"),
        (INGRESS.replace("name: web,", "annotations: {a: true},"), "annotation a is not a string; put its value in q"),
        ("apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: [x]\n", "metadata of an object of kind Ingress"),
        ("a: 2026-13-45\n", "is not YAML: month"),
        ("[" * 5_000, "is not YAML"),
        (INGRESS.encode("utf-16"), "is not UTF-8 text"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_file(tmp_path: Path, text: str | bytes, part: str) -> None:
    file = tmp_path / "bad.yaml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(BadConfiguration) as error:
        read_files([str(file)], "default")
    assert str(file) in error.value.sentence
    assert part in error.value.sentence


@pytest.mark.req("L7-14")
@pytest.mark.parametrize(("first", "title"), [(INGRESS, "Ingress default/web"), (SERVICE, "Service other/web")])
@pytest.mark.parametrize("files", [1, 2])
def test_an_object_that_is_given_twice_is_an_error(tmp_path: Path, first: str, title: str, files: int) -> None:
    paths = [tmp_path / f"{number}.yaml" for number in range(files)]
    for path in paths:
        path.write_text(first if files == 2 else f"{first}---\n{first}")
    with pytest.raises(BadConfiguration) as error:
        read_files(map(str, paths), "default")
    assert title in error.value.sentence
    assert str(paths[-1]) in error.value.sentence
    assert str(paths[0]) in error.value.sentence
