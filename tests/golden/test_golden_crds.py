"""Every CRD as YAML: what changes here changes in users' clusters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from fairlead.api.kinds import all_crds

HERE = Path(__file__).parent / "crds"
CRDS = {crd["metadata"]["name"]: crd for crd in all_crds()}


class Plain(yaml.SafeDumper):
    """YAML without anchors: a person reads it."""

    def ignore_aliases(self, data: object) -> bool:
        return True


@pytest.mark.parametrize("name", sorted(CRDS))
def test_crd(name: str, golden: Callable[[Path, str], None]) -> None:
    golden(HERE / f"{name}.yaml", yaml.dump(CRDS[name], Dumper=Plain, sort_keys=False, width=110))


def test_nothing_is_left_over() -> None:
    assert {path.stem for path in HERE.glob("*.yaml")} <= set(CRDS)
