"""Conditions and Events: the types and reasons of every status, with Gateway API's names where it has them."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class ConditionType(StrEnum):
    """The condition types that our objects carry."""

    ACCEPTED = "Accepted"
    RESOLVED_REFS = "ResolvedRefs"
    PROGRAMMED = "Programmed"
    SERVING = "Serving"
    CONFLICTED = "Conflicted"
    STALE = "Stale"
    PAUSED = "Paused"
    DRIFTED = "Drifted"
    GUARDED = "Guarded"
    PROTECTED = "Protected"
    IN_USE = "InUse"
    READY = "Ready"
    # For an object that cannot become Ready until its spec, or an object that the spec names, is corrected.
    STALLED = "Stalled"
    CLOCK_SKEWED = "ClockSkewed"
    DRAINING = "Draining"
    CHECKS_SLOWED = "ChecksSlowed"
    # Of a LoadBalancer with spec.clusterName, written by the controller for Cluster API.
    EXISTS = "Exists"
    MATCHES_CONFIG = "MatchesConfig"
    ENDPOINT_PUBLISHED = "EndpointPublished"
    IS_REACHABLE = "IsReachable"
    MEMBERS_RESOLVED = "MembersResolved"
    HEALTHY = "Healthy"
    CONTROL_PLANE_INITIALIZED = "ControlPlaneInitialized"
    CONTROL_PLANE_READY = "ControlPlaneReady"
    HOSTNAMES_ACCEPTED = "HostnamesAccepted"
    HOSTNAMES_PUBLISHED = "HostnamesPublished"
    # Of a ProxyMachine.
    ANNOUNCING = "Announcing"


#: The types that the controller for Cluster API writes in addition to those of the hub.
CAPI_CONDITIONS = frozenset(
    {
        ConditionType.EXISTS,
        ConditionType.MATCHES_CONFIG,
        ConditionType.ENDPOINT_PUBLISHED,
        ConditionType.IS_REACHABLE,
        ConditionType.MEMBERS_RESOLVED,
        ConditionType.HEALTHY,
        ConditionType.CONTROL_PLANE_INITIALIZED,
        ConditionType.CONTROL_PLANE_READY,
    }
)
#: Types whose status ``True`` means that all is well; of all others it names a problem or an exception.
GOOD_WHEN_TRUE = frozenset(
    {
        ConditionType.ACCEPTED,
        ConditionType.RESOLVED_REFS,
        ConditionType.PROGRAMMED,
        ConditionType.SERVING,
        ConditionType.READY,
        *CAPI_CONDITIONS,
        ConditionType.HOSTNAMES_ACCEPTED,
        ConditionType.HOSTNAMES_PUBLISHED,
        ConditionType.ANNOUNCING,
    }
)


class ConditionReason(StrEnum):
    """All reasons that Fairlead sets: a stable, documented set."""

    ACCEPTED = "Accepted"
    RESOLVED_REFS = "ResolvedRefs"
    PROGRAMMED = "Programmed"
    PENDING = "Pending"
    INVALID = "Invalid"
    NO_SUCH_CLASS = "NoSuchClass"
    NO_SUCH_ZONE = "NoSuchZone"
    DRY_RUN = "DryRun"
    UNSUPPORTED_PROTOCOL = "UnsupportedProtocol"
    UNSUPPORTED_ADDRESS_FAMILY = "UnsupportedAddressFamily"
    UNSUPPORTED_SERVICE = "UnsupportedService"
    NODE_PORT_MISSING = "NodePortMissing"
    PORT_CONFLICT = "PortConflict"
    ADDRESS_NOT_ASSIGNED = "AddressNotAssigned"
    ADDRESS_NOT_USABLE = "AddressNotUsable"
    ADDRESS_POOL_EXHAUSTED = "AddressPoolExhausted"
    QUOTA_EXCEEDED = "QuotaExceeded"
    REJECTED_BY_PROXY = "RejectedByProxy"
    ROUTES_REFUSED = "RoutesRefused"
    NO_PROXY_CONNECTED = "NoProxyConnected"
    BACKEND_NOT_FOUND = "BackendNotFound"
    ALL_NODES_NOT_READY = "AllNodesNotReady"
    MEMBER_LOST = "MemberLost"
    REMOVALS_HELD = "RemovalsHeld"
    QUARANTINED = "Quarantined"
    DRIFTED = "Drifted"
    NO_SUCH_LOAD_BALANCER = "NoSuchLoadBalancer"
    OUT_OF_SCOPE = "OutOfScope"
    PAUSED_BY_USER = "PausedByUser"
    PROVIDER_FAILED = "ProviderFailed"
    DELETING = "Deleting"
    CLASS_DRAINING = "ClassDraining"
    CLASS_NOT_USABLE = "ClassNotUsable"
    REFUSED_BY_PROVIDER = "RefusedByProvider"
    PARAMETERS_DIFFER = "ParametersDiffer"
    DO_NOT_DELETE = "DoNotDelete"
    NO_MACHINES = "NoMachines"
    NO_SUCH_PROVIDER = "NoSuchProvider"
    IN_USE = "InUse"
    UNUSED = "Unused"
    READY = "Ready"
    CLOCK_SKEW = "ClockSkew"
    SERVING = "Serving"
    NO_TARGETS = "NoTargets"
    NO_HEALTHY_TARGETS = "NoHealthyTargets"
    UNREACHABLE_FROM_SOME_PROXIES = "UnreachableFromSomeProxies"
    WAITING_FOR_FIRST_CHECK = "WaitingForFirstCheck"
    PROXIES_SILENT = "ProxiesSilent"
    NOT_PROGRAMMED = "NotProgrammed"
    NOT_CHECKED = "NotChecked"
    SOME_BACKENDS_UNHEALTHY = "SomeBackendsUnhealthy"
    FLAPPING = "Flapping"
    SHIFT_STOPPED = "ShiftStopped"
    WITHDRAWN = "Withdrawn"
    DRILL_STARTED = "DrillStarted"
    DRILL_PASSED = "DrillPassed"
    DRILL_FAILED = "DrillFailed"
    DRILL_INCONCLUSIVE = "DrillInconclusive"
    DRILL_REFUSED = "DrillRefused"
    EXISTS = "Exists"
    MATCHES_CONFIG = "MatchesConfig"
    ENDPOINT_PUBLISHED = "EndpointPublished"
    ENDPOINT_CONFLICT = "EndpointConflict"
    ENDPOINT_CLAIMED = "EndpointClaimed"
    NOT_PUBLISHED = "NotPublished"
    REACHABLE = "Reachable"
    NOT_REACHABLE = "NotReachable"
    NAME_NOT_RESOLVED = "NameNotResolved"
    NO_SUCH_PARENT = "NoSuchCluster"
    SELECTOR_NOT_VALID = "SelectorNotValid"
    OTHER_CLUSTERS = "OtherClusters"
    MEMBERS_UNKNOWN = "MembersUnknown"
    HEALTHY = "Healthy"
    SOME_MEMBERS_DOWN = "SomeMembersDown"
    HOSTNAMES_ACCEPTED = "HostnamesAccepted"
    HOSTNAMES_PUBLISHED = "HostnamesPublished"
    HOSTNAME_NOT_PUBLISHED = "HostnameNotPublished"
    HOSTNAME_TAKEN = "HostnameTaken"
    SECRET_TAKEN = "SecretTaken"  # noqa: S105 - a reason
    HOSTNAME_INVALID = "HostnameInvalid"
    DOMAIN_RESERVED = "DomainReserved"
    WILDCARD_NOT_GRANTED = "WildcardNotGranted"
    ISSUED = "Issued"
    NO_SUCH_ISSUER = "NoSuchIssuer"
    NOT_ALLOWED = "NotAllowed"
    CHALLENGE_NOT_ANSWERED = "ChallengeNotAnswered"
    AUTHORITY_REFUSED = "AuthorityRefused"
    AUTHORITY_UNREACHABLE = "AuthorityUnreachable"
    UNREACHABLE = "Unreachable"
    PROXY_DOWN = "ProxyDown"
    DUPLICATE_MACHINE = "DuplicateMachine"
    REPORTS_PROBLEM = "ReportsProblem"
    ANNOUNCING = "Announcing"
    STANDBY = "Standby"
    NOTHING_TO_ANNOUNCE = "NothingToAnnounce"
    DRAINED = "Drained"
    CONTESTED = "Contested"
    NOT_ANNOUNCED = "NotAnnounced"
    SESSION_DOWN = "SessionDown"


#: Reasons that neither time nor retries resolve: the spec, or an object that it names, must be corrected.
TERMINAL = frozenset(
    {
        ConditionReason.INVALID,
        ConditionReason.UNSUPPORTED_PROTOCOL,
        ConditionReason.UNSUPPORTED_ADDRESS_FAMILY,
        ConditionReason.UNSUPPORTED_SERVICE,
        ConditionReason.PARAMETERS_DIFFER,
        ConditionReason.REFUSED_BY_PROVIDER,
        ConditionReason.REJECTED_BY_PROXY,
        ConditionReason.SELECTOR_NOT_VALID,
        ConditionReason.HOSTNAME_INVALID,
        ConditionReason.DOMAIN_RESERVED,
        ConditionReason.WILDCARD_NOT_GRANTED,
    }
)


class Condition(msgspec.Struct, frozen=True, gc=False):
    """One condition without its times, which belong to the writer of the status; ``status`` None is Unknown."""

    type: ConditionType
    status: bool | None
    reason: ConditionReason
    message: str = ""

    @property
    def good(self) -> bool:
        """Return whether the condition has its healthy status."""
        return self.status == (self.type in GOOD_WHEN_TRUE)


def reason_from(text: str) -> ConditionReason | None:
    """Return the reason with that name; None if this release does not know it."""
    try:
        return ConditionReason(text)
    except ValueError:
        return None


class ObjectEvent(msgspec.Struct, frozen=True, order=True):
    """One Event on the user's object: a PascalCase reason, and a sentence that says what to do."""

    warning: bool
    reason: str
    message: str


def warning_event(reason: str, message: str) -> ObjectEvent:
    """Return an event of type Warning."""
    return ObjectEvent(True, reason, message)
