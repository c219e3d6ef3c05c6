"""Descriptions of the fields of zones and hostnames; by struct, then by wire name."""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.api.descriptions.shared import INTENT_STATUS, MEMBERS_OBJECT, OBSERVED

NAMES: Mapping[str, Mapping[str, str]] = {
    "DNSZoneSpec": {
        "zone": "Domain of the zone, such as lb.example.com.",
        "provider": "Provider that writes the zone: rfc2136, powerdns, external-dns or external-dns-annotations.",
        "parameters": "Provider settings, such as server and key.",
        "ttlSeconds": "TTL of records whose Hostname sets none.",
        "ownerId": "Identifier that marks this hub's records among those of other writers.",
        "dryRun": "Whether changes are only planned and never written.",
    },
    "DNSZoneStatus": {**OBSERVED, "names": "Number of published names of the zone."},
    "HostnameSpec": {
        "host": "DNS name. The first label may be an asterisk.",
        "addresses": "IP addresses that the name resolves to.",
        "cname": "Target of the CNAME record.",
        "texts": "Texts of the TXT records.",
        "ttlSeconds": "TTL of the records; 0 means that of the zone.",
        "generated": "Whether the hub generated the name from member and object.",
    },
    "HostnameOwner": {
        **MEMBERS_OBJECT,
        "member": "Name of the Tenant.",
        "loadBalancer": "Load balancer at the hub, as Kind/namespace/name.",
    },
    "HostnameCertificate": {
        "secret": "Secret of the certificate at the hub, as namespace/name.",
        "issuer": "Issuer of the certificate.",
        "notAfter": "Time when the certificate expires.",
    },
    "HostnameStatus": {
        **INTENT_STATUS,
        "zone": "DNSZone of the name; empty if no zone contains it.",
        "records": "Published and expected records, such as 2/3.",
        "waiting": "Number of other objects that request the name.",
    },
}  # fmt: skip
