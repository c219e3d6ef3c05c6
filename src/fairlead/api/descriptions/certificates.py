"""Descriptions of the fields of issuers and certificates; by struct, then by wire name."""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.api.descriptions.shared import OBSERVED

CERTIFICATES: Mapping[str, Mapping[str, str]] = {
    "ExternalAccount": {
        "keyId": "Identifier of the key, as the authority gave it.",
        "secretRef": "Secret in the hub's own namespace whose entry hmac is the key.",
    },
    "CertificateIssuerSpec": {
        "server": "URL of the directory of the ACME server.",
        "email": "Address to which the authority writes about the account.",
        "accountKeySecret": "Secret in the hub's own namespace with the key of the account; acme-account-NAME.",
        "caBundle": "Authorities (PEM) that the ACME server itself may have; those of the system if empty.",
        "solvers": "How names are proven, in order of preference: HTTP01, DNS01.",
        "domains": "Names that may be asked for, with their sub-names; any if empty.",
        "tenants": "Names of the Tenants that may ask; all if empty.",
    },
    "CertificateIssuerStatus": {
        **OBSERVED,
        "account": "URL of the account at the authority.",
        "accountFor": "What the account was made for, as a digest.",
    },
    "ManagedCertificateSpec": {
        "hosts": "Names in the certificate.",
        "issuer": "Name of the CertificateIssuer.",
        "secretName": "Secret that the hub writes beside the object; it has the name of the object if empty.",
        "loadBalancers": "HTTPLoadBalancers beside it that answer for the names.",
        "askedBy": "The first objects of the member that asked for it.",
    },
    "CertificateOrder": {
        "url": "URL of the order at the authority.",
        "finalize": "URL at which the order is completed.",
        "started": "When the order was begun.",
        "issuer": "Name of the CertificateIssuer, and the account, that it was begun with.",
        "challenges": "How its names are proven.",
    },
    "OrderChallenge": {
        "host": "The name.",
        "type": "http-01 or dns-01; empty where it needs no proof.",
        "url": "URL of the challenge at the authority.",
        "authorization": "URL of the authorization at the authority.",
        "token": "The token of the challenge.",
        "content": "What is served for it, or the text of the TXT record; it is public.",
        "offered": "Whether the authority was asked to check it.",
    },
    "ManagedCertificateStatus": {
        **OBSERVED,
        "state": "Pending, Ordering, Issued or Failing.",
        "digest": "Names the version in the Secret; empty while there is none.",
        "issuedBy": "The CertificateIssuer that issued what is in the Secret.",
        "issuedFor": "The names in the certificate that is in the Secret.",
        "serial": "Serial number of the certificate, hexadecimal.",
        "notBefore": "When the certificate begins.",
        "notAfter": "When the certificate ends.",
        "renewAt": "When the next one is ordered.",
        "issuedAt": "When the hub received the certificate, by the clock of the hub.",
        "failures": "Failed orders since the last success.",
        "nextTry": "When the next order is tried after a failure.",
        "triedWith": "Digest of the server, the account and the solvers that failed; others are tried at once.",
        "order": "The order at the authority that has not ended.",
    },
}  # fmt: skip
