"""A bill of materials of this image in CycloneDX 1.5, from the metadata of installed packages.

In: the Python packages that this interpreter sees, and the packages of Debian where there are any. Out: JSON, in the
file that is named or on stdout. Only the standard library is needed, and no server is asked.
Source: https://cyclonedx.org/docs/1.5/json/
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

_STATUS = Path("/var/lib/dpkg/status")


def bill(dpkg_status: Path = _STATUS) -> dict[str, Any]:
    """Return the bill; Fairlead itself is what it is about, all others are its components."""
    parts = {part["purl"]: part for part in [*_python(), *_debian(dpkg_status)]}
    own = next(part for part in parts.values() if part["name"] == "fairlead")
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {**own, "type": "application"}},
        "components": [parts[purl] for purl in sorted(parts) if purl != own["purl"]],
    }


def _python() -> Iterator[dict[str, Any]]:
    for each in distributions():
        name = re.sub(r"[-_.]+", "-", each.metadata["Name"]).lower()
        part: dict[str, Any] = {
            "type": "library",
            "name": name,
            "version": each.version,
            "purl": f"pkg:pypi/{name}@{each.version}",
        }
        if licence := _licence(each):
            part["licenses"] = [{"license": {"name": licence}}]
        yield part


def _licence(each: Distribution) -> str:
    """Return the licence of a package by its expression, its field, or its classifiers; some put a whole text there."""
    classifiers = [value for key, value in each.metadata.items() if key == "Classifier" and "License ::" in value]
    stated = each.metadata.get("License-Expression") or each.metadata.get("License") or ""
    return stated if 0 < len(stated) < 100 else ", ".join(value.rpartition(":: ")[2] for value in classifiers)


def _debian(status: Path) -> Iterator[dict[str, Any]]:
    if not status.is_file():
        return
    for paragraph in status.read_text(encoding="utf-8").split("\n\n"):
        fields = dict(re.findall(r"(?m)^(Package|Version|Architecture|Status): (.+)$", paragraph))
        if fields.get("Status", "").endswith(" installed"):
            name, version = fields["Package"], fields["Version"]
            purl = f"pkg:deb/debian/{name}@{version.replace('+', '%2B')}?arch={fields['Architecture']}"
            yield {"type": "library", "name": name, "version": version, "purl": purl}


def main(arguments: list[str]) -> None:
    """Write the bill."""
    text = json.dumps(bill(), indent=1) + "\n"
    if arguments:
        Path(arguments[0]).write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main(sys.argv[1:])
