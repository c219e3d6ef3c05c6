"""The files that a release has for clusterctl: `make release`, or `python -m tools.release DIRECTORY`.

    DIRECTORY/addon-fairlead/v0.2.0/components.yaml   every kind with its labels, and deploy/kubernetes/capi.yaml
    DIRECTORY/addon-fairlead/v0.2.0/metadata.yaml     which contract of Cluster API this release follows

In: the version of this source. Out: a directory that clusterctl takes as a local repository; its image is a variable.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import yaml

from fairlead import __version__
from fairlead.api.clusterapi import PROVIDER_LABEL, labelled, metadata
from fairlead.api.kinds import all_crds

_MANIFEST = Path(__file__).parents[1] / "deploy" / "kubernetes" / "capi.yaml"
_IMAGE = re.compile(r"image: (\S+)( # yours)?")


def components(release: str) -> str:
    """Return components.yaml of ``release``; FAIRLEAD_IMAGE names the image, the manifest's own when it is not set."""
    # clusterctl replaces $ as shells do: every $ that does not start our variable is doubled.
    kinds = yaml.safe_dump_all(labelled(all_crds()), sort_keys=False, explicit_start=True, width=120)
    image = _IMAGE.search(_MANIFEST.read_text())
    assert image is not None, f"{_MANIFEST} names no image"
    default = f"{image[1].rpartition(':')[0]}:{release.removeprefix('v')}"
    controller = _IMAGE.sub(f"image: ${{FAIRLEAD_IMAGE:={default}}}", _MANIFEST.read_text())
    return f"{kinds.replace('$', '$$')}---\n{controller}"


def write(directory: Path, release: str) -> list[Path]:
    """Write both files of ``release`` below ``directory``; return them."""
    home = directory / PROVIDER_LABEL / release
    home.mkdir(parents=True, exist_ok=True)
    contents = {
        "components.yaml": components(release),
        "metadata.yaml": yaml.safe_dump(metadata(release), sort_keys=False),
    }
    for name, content in contents.items():
        (home / name).write_text(content)
    return [home / name for name in contents]


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "dist")
    for written in write(target, f"v{__version__}"):
        sys.stdout.write(f"{written}\n")
