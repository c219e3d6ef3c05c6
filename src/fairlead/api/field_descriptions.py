"""Descriptions of our fields, for ``kubectl explain`` and the reference; by struct, then by wire name.

A field whose type is a struct needs no row: it has the docstring of that struct. Out: sentences. Never: a limit or a
default, which the schema says itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.api.descriptions.backends import BACKENDS
from fairlead.api.descriptions.certificates import CERTIFICATES
from fairlead.api.descriptions.clusters import CLUSTERS
from fairlead.api.descriptions.connections import CONNECTIONS
from fairlead.api.descriptions.names import NAMES
from fairlead.api.descriptions.requests import REQUESTS
from fairlead.api.descriptions.tenants import TENANTS

FIELDS: Mapping[str, Mapping[str, str]] = {
    **BACKENDS,
    **CERTIFICATES,
    **CLUSTERS,
    **CONNECTIONS,
    **NAMES,
    **REQUESTS,
    **TENANTS,
}
