"""Writes what the Helm charts share with the rest of the project, so that neither has a second home.

In: the manifests, alerts and dashboard below ``deploy``, the CustomResourceDefinitions, the version, and the schema of
each chart's values. Out: the files of ``deploy/charts`` that say so in their first line, by path from the root.
``make docs`` writes them, and a test holds them to it. Templates that are more than a copy are written by hand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tools import dashboard

ROOT = Path(__file__).parents[1]
CHARTS = ROOT / "deploy" / "charts"
MANIFESTS = ROOT / "deploy" / "kubernetes"
ALERTS = ROOT / "deploy" / "monitoring" / "alerts.yaml"

_RIGHTS = frozenset({"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"})
_VALUES = re.compile(r"(?s)(<!-- values: written by `make docs` from values.schema.json -->\n).*?(<!-- /values -->)")
#: Manifests other than hub.yaml and agent.yaml, and the value that enables each, by chart.
_OPTIONAL = {
    "hub": {
        "limits": "limits",
        "protection": "protection",
        "another-controller": "anotherController",
        "external-dns": "externalDNS",
        "external-dns-annotations": "externalDNSAnnotations",
        "cluster-proxies": "clusterProxies",
    },
    "agent": {"multi-cluster-services": "rbac.create multiClusterServices"},
}
_TOLERATIONS = """\
      {{- with .Values.proxyNodes.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
"""
_HUBS = """
{{- with .Values.proxyNodes.hubs }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: fairlead-hubs
  namespace: fairlead-proxy-nodes
data:
  hubs.json: {{ toJson . | quote }}
{{- end }}
"""
_NO_IMAGE = '"egress.image is empty; name an image of Fairlead that has the programs ip and nft"'
_SUMMARY = {
    "hub": "The hub of Fairlead: gives Services of member clusters their addresses, with Envoys in this cluster.",
    "agent": "The agent of Fairlead: asks a hub for load balancers on behalf of this cluster.",
}


def files() -> dict[str, str]:
    """Return every generated file of the charts, and the dashboard that one of them has a copy of."""
    made = {"deploy/monitoring/dashboard.json": dashboard.text()}
    for name in ("hub", "agent"):
        here = f"deploy/charts/fairlead-{name}"
        schema = json.loads((ROOT / here / "values.schema.json").read_text(encoding="utf-8"))
        readme = (ROOT / here / "README.md").read_text(encoding="utf-8")
        made[f"{here}/Chart.yaml"] = _chart(name)
        made[f"{here}/values.yaml"] = "# Written by `make docs` from values.schema.json.\n" + _values(schema)
        made[f"{here}/README.md"] = _with_table(readme, schema)
        made[f"{here}/templates/rbac.yaml"] = _if("rbac.create", f"{name}.yaml", "\n---\n".join(_documents(name)))
        for manifest, value in _OPTIONAL[name].items():
            text = (MANIFESTS / f"{manifest}.yaml").read_text(encoding="utf-8")
            made[f"{here}/templates/{manifest}.yaml"] = _if(f"{value}.enabled", f"{manifest}.yaml", text)
    gates, agent = "readiness-gates", "deploy/charts/fairlead-agent/templates"
    made[f"{agent}/readiness-gates-rbac.yaml"] = _if(
        "rbac.create readinessGates.enabled", f"{gates}.yaml", "\n---\n".join(_documents(gates))
    )
    made[f"{agent}/egress-rbac.yaml"] = _if(
        "rbac.create egress.enabled", "egress.yaml", "\n---\n".join(_documents("egress"))
    )
    made[f"{agent}/egress.yaml"] = _if("egress.enabled", "egress.yaml", _egress())
    probes = "readiness-probes"
    made[f"{agent}/readiness-probes-rbac.yaml"] = _if(
        "rbac.create followReadinessProbes", f"{probes}.yaml", "\n---\n".join(_documents(probes))
    )
    made[f"{agent}/readiness-gates.yaml"] = _if(
        "readinessGates.enabled readinessGates.inject", f"{gates}.yaml", "\n---\n".join(_documents(gates, rights=False))
    )
    hub = "deploy/charts/fairlead-hub"
    made[f"{hub}/templates/proxy-nodes.yaml"] = _if("proxyNodes.enabled", "proxy-nodes.yaml", _proxy_nodes())
    made[f"{hub}/files/alerts.yaml"] = _copy("deploy/monitoring/alerts.yaml") + ALERTS.read_text(encoding="utf-8")
    made[f"{hub}/files/dashboard.json"] = dashboard.text()
    made[f"{hub}/files/crds.yaml"] = _copy("`fairlead crds`") + _definitions()
    return made


def _copy(source: str) -> str:
    return f"# Written by `make docs` from {source}.\n"


def _if(values: str, source: str, text: str) -> str:
    """Return a template that is there if all of ``values``, separated by spaces, are true."""
    names = [f".Values.{value}" for value in values.split()]
    condition = names[0] if len(names) == 1 else " ".join(["and", *names])
    return f"{{{{- if {condition} }}}}\n{_copy('deploy/kubernetes/' + source)}{text.rstrip()}\n{{{{- end }}}}\n"


def _documents(name: str, *, rights: bool = True) -> list[str]:
    """Return the documents of a manifest that grant rights, or the others, as they stand there with their comments."""
    documents = (MANIFESTS / f"{name}.yaml").read_text(encoding="utf-8").split("\n---\n")
    kinds: list[dict[str, Any]] = [yaml.safe_load(text) or {} for text in documents]
    return [text for text, doc in zip(documents, kinds, strict=True) if (doc.get("kind") in _RIGHTS) is rights]


def _proxy_nodes() -> str:
    """Return the manifest of proxy machines on nodes, with the image, tolerations and hubs of the values."""
    text = (MANIFESTS / "proxy-nodes.yaml").read_text(encoding="utf-8").rstrip()
    text, images = re.subn(r"image: \S+ # yours", 'image: {{ include "fairlead-hub.image" . }}', text)
    text, pods = re.subn(r"(?m)^      hostNetwork: true$", _TOLERATIONS + r"\g<0>", text)
    if (images, pods) != (1, 1):
        raise ValueError("proxy-nodes.yaml has another form than its template expects")
    return text + _HUBS


def _egress() -> str:
    """Return the DaemonSet of egress nodes and its namespace, with the image of the values."""
    text = "\n---\n".join(_documents("egress", rights=False))
    text, images = re.subn(r"image: \S+ # yours", "image: {{ required " + _NO_IMAGE + " .Values.egress.image }}", text)
    if images != 1:
        raise ValueError("egress.yaml has another form than its template expects")
    return text


def _definitions() -> str:
    """Return the CustomResourceDefinitions, which Helm upgrades, and leaves when the release is removed."""
    from fairlead.api.kinds import all_crds

    kept = [
        {
            **crd,
            "metadata": {
                **crd["metadata"],
                "annotations": {**crd["metadata"].get("annotations", {}), "helm.sh/resource-policy": "keep"},
            },
        }
        for crd in all_crds()
    ]
    return yaml.safe_dump_all(kept, sort_keys=False, explicit_start=True, width=120)


def _chart(name: str) -> str:
    from fairlead import __version__

    chart = {
        "apiVersion": "v2",
        "name": f"fairlead-{name}",
        "description": _SUMMARY[name],
        "type": "application",
        "version": __version__,
        "appVersion": __version__,
        "kubeVersion": ">=1.30.0-0",
    }
    return _copy("the version of the project") + yaml.safe_dump(chart, sort_keys=False, width=120)


# --- values -----------------------------------------------------------------------------------------------------


def leaves(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every value by its path, such as ``image.tag``; those without a default are not the chart's own."""
    for name, node in schema["properties"].items():
        if "properties" in node:
            yield from leaves(node, f"{path}{name}.")
        else:
            yield f"{path}{name}", node


def _values(schema: dict[str, Any], indent: str = "") -> str:
    lines: list[str] = []
    for name, node in schema["properties"].items():
        if name == "global":
            continue
        lines.append(f"{indent}# {node['description']}")
        if "properties" in node:
            lines += [f"{indent}{name}:", _values(node, indent + "  ").rstrip("\n")]
        elif node["default"] and isinstance(node["default"], dict):
            text = yaml.safe_dump(node["default"], sort_keys=False)
            lines += [f"{indent}{name}:", *(f"{indent}  {line}" for line in text.splitlines())]
        else:
            lines.append(f"{indent}{name}: {json.dumps(node['default'])}")
    return "\n".join(lines) + "\n"


def _with_table(readme: str, schema: dict[str, Any]) -> str:
    table = _table(schema)
    return _VALUES.sub(lambda match: match[1] + table + match[2], readme)


def _table(schema: dict[str, Any]) -> str:
    lines = ["| value | default | meaning |", "|---|---|---|"]
    for path, node in leaves(schema):
        if path == "global":
            continue
        kinds = " \\| ".join(f"`{value}`" for value in node.get("enum", ()))
        meaning = f"{node['description']} {kinds}".strip().replace("<", "&lt;")
        lines.append(f"| `{path}` | `{json.dumps(node['default'])}` | {meaning} |")
    return "\n".join(lines) + "\n"
