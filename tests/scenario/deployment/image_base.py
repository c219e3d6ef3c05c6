"""Makes a base image without a registry: the packages of this Debian that a Python needs, copied into a file system.

In: the names of installed packages. Out: the directory with all their files and those of what they depend on.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

#: A shell, Python with venv, and what Envoy and TLS need.
PACKAGES = ("dash", "coreutils", "base-files", "ca-certificates", "python3-venv", "python3", "libstdc++6")
_ALTERNATIVES = re.compile(r"\s*\([^)]*\)|:any|:native")


def dependencies(packages: tuple[str, ...]) -> list[str]:
    """Return these packages and all that they depend on, as far as it is installed here."""
    todo, there = list(packages), set[str]()
    while todo:
        package = todo.pop()
        if package in there:
            continue
        asked = subprocess.run(
            ["dpkg-query", "-W", "-f", "${db:Status-Abbrev}${Depends}, ${Pre-Depends}", package],
            capture_output=True,
            text=True,
            check=False,
        )
        if asked.returncode or not asked.stdout.startswith("ii "):
            continue
        there.add(package)
        choices = [part.split("|") for part in _ALTERNATIVES.sub("", asked.stdout[3:]).split(",")]
        todo += [name.strip() for choice in choices for name in choice if name.strip()]
    return sorted(there)


def copy_packages(root: Path) -> None:
    """Fill ``root`` with the files of the packages, and with the trusted certificates of this machine."""
    listed = subprocess.run(["dpkg", "-L", *dependencies(PACKAGES)], capture_output=True, text=True, check=True)
    # Packages say /lib where this machine may have a link to /usr/lib: each file under the name of its real directory.
    paths = [Path(line) for line in listed.stdout.splitlines() if line.startswith("/") and "/share/doc" not in line]
    files = {path.parent.resolve() / path.name for path in paths if path.exists() and path != Path("/.")}
    files |= {Path("/etc/passwd"), Path("/etc/ssl/certs/ca-certificates.crt")}
    links = {path for path in map(Path, ("/bin", "/sbin", "/lib", "/lib64")) if path.is_symlink()}
    names = [*sorted(files - links), *sorted(links)]
    made = subprocess.run(
        ["tar", "--create", "--directory=/", "--no-recursion", "--files-from=-"],
        input="\n".join(str(name).lstrip("/") for name in names if str(name) != "/").encode(),
        capture_output=True,
        check=True,
    )
    subprocess.run(["tar", "--extract", f"--directory={root}"], input=made.stdout, check=True)
