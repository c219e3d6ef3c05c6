"""Answer discovery: ``/api``, ``/apis`` and one list of resources per group version."""

from __future__ import annotations

from fairlead.apiserver.kinds.catalog import Catalog
from fairlead.apiserver.kinds.kind import Kind
from fairlead.apiserver.objects import Obj

VERSION: Obj = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.0+fairlead",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "python",
    "compiler": "cpython",
    "platform": "linux",
}
_REVIEWS: dict[str, list[tuple[str, str, bool]]] = {
    "authentication.k8s.io": [
        ("selfsubjectreviews", "SelfSubjectReview", False),
        ("tokenreviews", "TokenReview", False),
    ],
    "authorization.k8s.io": [
        ("localsubjectaccessreviews", "LocalSubjectAccessReview", True),
        ("selfsubjectaccessreviews", "SelfSubjectAccessReview", False),
        ("selfsubjectrulesreviews", "SelfSubjectRulesReview", False),
        ("subjectaccessreviews", "SubjectAccessReview", False),
    ],
}


def group_versions(group: str, versions: list[str]) -> Obj:
    """Return an ``APIGroup``; ``versions`` have the preferred one first."""
    entries = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"kind": "APIGroup", "apiVersion": "v1", "name": group, "versions": entries, "preferredVersion": entries[0]}


def _resource(kind: Kind) -> Obj:
    entry: Obj = {"name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind}
    entry["verbs"] = list(kind.verbs)
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    return entry


def _subresources(kind: Kind) -> list[Obj]:
    shared: Obj = {"singularName": "", "namespaced": kind.namespaced}
    listed: list[Obj] = []
    if kind.has_status:
        name = f"{kind.plural}/status"
        listed.append({"name": name} | shared | {"kind": kind.kind, "verbs": ["get", "patch", "update"]})
    for sub, (group, version, body) in kind.subresources.items():
        entry: Obj = {"name": f"{kind.plural}/{sub}"} | shared
        listed.append(entry | {"group": group, "version": version, "kind": body, "verbs": ["create"]})
    return listed


def resources(catalog: Catalog, group: str, version: str) -> Obj | None:
    """Return an ``APIResourceList``, or None when there is no such group version."""
    listed: list[Obj] = []
    for kind in catalog.all():
        if (kind.group, kind.version) == (group, version):
            listed += [_resource(kind), *_subresources(kind)]
    for name, kind_name, namespaced in _REVIEWS.get(group, ()) if version == "v1" else ():
        review: Obj = {"name": name, "singularName": kind_name.lower(), "namespaced": namespaced}
        listed.append(review | {"kind": kind_name, "verbs": ["create"]})
    if not listed:
        return None
    group_version = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": listed}


def discover(catalog: Catalog, path: str) -> Obj | None:
    """Return the document at a discovery path, or None when there is none."""
    parts = path.strip("/").split("/")
    groups = catalog.groups()
    match parts:
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["apis"]:
            listed = [group_versions(group, versions) for group, versions in groups.items()]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
        case ["apis", group] if group in groups:
            return group_versions(group, groups[group])
        case ["api", "v1"]:
            return resources(catalog, "", "v1")
        case ["apis", group, version]:
            return resources(catalog, group, version)
        case ["version"]:
            return VERSION
        case _:
            return None
