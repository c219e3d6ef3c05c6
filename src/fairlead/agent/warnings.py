"""Warnings about a Service that is not refused.

In: a Service and the decision about it. Out: sentences, each with a reason, that become Warning Events.
Never changes what is exported.
"""

from __future__ import annotations

from difflib import get_close_matches

from fairlead.agent.decision import Decision, Ours
from fairlead.agent.events import ServiceEvent, warning_event
from fairlead.api.kubernetes import Service
from fairlead.api.names import ANNOTATION_SERVICE_CLASS, GROUP, SERVICE_CLASS_VALUES
from fairlead.api.near_names import SERVICE_ANNOTATIONS, did_you_mean, near_annotation
from fairlead.publish.service_options import ServiceOptions, read_options

#: Kubernetes writes this into every Service with ClientIP affinity, so it is not what the user chose.
DEFAULT_AFFINITY_TIMEOUT_S = 10_800

UNKNOWN_ANNOTATION = "UnknownAnnotation"
AFFINITY_TIMEOUT_IGNORED = "AffinityTimeoutIgnored"
SOURCE_RANGE_AMBIGUOUS = "SourceRangeAmbiguous"


def find_warnings(service: Service, decision: Decision) -> tuple[ServiceEvent, ...]:
    """Return all Warnings about a Service, in a stable order."""
    ours = [*_affinity(service), *_doubtful_ranges(service)] if isinstance(decision, Ours) else []
    return (*_service_class(service), *_unknown_annotations(service), *ours)


def _service_class(service: Service) -> list[ServiceEvent]:
    value = service.annotation(ANNOTATION_SERVICE_CLASS)
    hint = did_you_mean(value, tuple(sorted(SERVICE_CLASS_VALUES)))
    # A value that is nowhere near ours is another controller's.
    if not value or value in SERVICE_CLASS_VALUES or not hint:
        return []
    return [
        warning_event(
            UNKNOWN_ANNOTATION, f"annotation {ANNOTATION_SERVICE_CLASS} is {value!r}, which is unknown.{hint}"
        )
    ]


def _unknown_annotations(service: Service) -> list[ServiceEvent]:
    events: list[ServiceEvent] = []
    for key in sorted(service.metadata.annotations or {}):
        if key.startswith(f"{GROUP}/") and key not in SERVICE_ANNOTATIONS:
            hint = near_annotation(key)
        elif key.startswith("kubernetes.io/service") and key != ANNOTATION_SERVICE_CLASS:
            similar = get_close_matches(key.lower(), [ANNOTATION_SERVICE_CLASS], n=1, cutoff=0.9)
            if not similar:
                continue
            hint = f" Did you mean {ANNOTATION_SERVICE_CLASS!r}?"
        else:
            continue
        events.append(warning_event(UNKNOWN_ANNOTATION, f"annotation {key!r} has no meaning on a Service.{hint}"))
    return events


def _affinity(service: Service) -> list[ServiceEvent]:
    config = service.spec.session_affinity_config
    timeout_s = config.client_ip.timeout_seconds if config and config.client_ip else None
    if service.spec.session_affinity != "ClientIP" or timeout_s in {None, DEFAULT_AFFINITY_TIMEOUT_S}:
        return []
    sentence = (
        f"sessionAffinityConfig.clientIP.timeoutSeconds {timeout_s} cannot be honoured: affinity here is by a hash of "
        "the client's address, which has no end. Clients stay with their backend as long as the backends stay the same."
    )
    return [warning_event(AFFINITY_TIMEOUT_IGNORED, sentence)]


def _doubtful_ranges(service: Service) -> list[ServiceEvent]:
    options = read_options(service)
    warnings = options.warnings if isinstance(options, ServiceOptions) else ()
    return [warning_event(SOURCE_RANGE_AMBIGUOUS, sentence) for sentence in warnings]
