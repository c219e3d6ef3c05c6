"""Descriptions of the fields of zones and hostnames; by struct, then by wire name."""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.api.descriptions.shared import INTENT_STATUS, MEMBERS_OBJECT, OBSERVED

NAMES: Mapping[str, Mapping[str, str]] = {
    "DNSZoneSpec": {
        "zone": "Domain of the zone, such as lb.example.com.",
        "provider": "How it is written: rfc2136, powerdns, external-dns or external-dns-annotations.",
        "parameters": "Settings of the provider: server, key and so on.",
        "ttlSeconds": "TTL of records whose Hostname asks for none.",
        "ownerId": "What marks our records in the zone, beside those of other writers.",
        "dryRun": "Whether changes are planned only, and nothing is written.",
    },
    "DNSZoneStatus": {**OBSERVED, "names": "How many names of the zone are published."},
    "HostnameSpec": {
        "host": "The name; an asterisk may be its first label.",
        "addresses": "IP addresses that the name resolves to.",
        "cname": "Name that it is an alias of.",
        "texts": "Texts of its TXT records.",
        "ttlSeconds": "TTL of its records; 0: that of the zone.",
        "generated": "Whether the hub made the name itself, from member and object.",
    },
    "HostnameOwner": {
        **MEMBERS_OBJECT,
        "member": "Name of the Tenant.",
        "loadBalancer": "Its load balancer at the hub, as Kind/namespace/name.",
    },
    "HostnameCertificate": {
        "secret": "Secret of the certificate at the hub, as namespace/name.",
        "issuer": "Who issued the certificate.",
        "notAfter": "When the certificate ends.",
    },
    "HostnameStatus": {
        **INTENT_STATUS,
        "zone": "The DNSZone that holds the name; empty where no zone does.",
        "records": "Records that are published of those expected, as in 2/3.",
        "waiting": "How many other objects ask for the name.",
    },
}  # fmt: skip
