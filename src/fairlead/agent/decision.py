"""What can be decided about a Service: ours, not ours, or refused with a sentence for its author.

In: nothing. Out: the three values that ``ownership``, ``wishes`` and ``export`` answer with. Never an exception.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from fairlead.model.condition import ConditionReason


class Scenario(IntEnum):
    """Why a Service is ours, numbered as in the design: it decides where its targets are and what we may write."""

    #: NodePort with the annotation: targets are the nodes; the address goes into an annotation.
    NODE_PORT = 1
    #: LoadBalancer of the member's own cloud, with the annotation: the target is that load balancer.
    CLOUD = 2
    #: LoadBalancer that nobody else implements: targets are nodes or pods; the status is ours to write.
    IMPLEMENTED = 3


class Ours(msgspec.Struct, frozen=True):
    """Export it. ``class_name`` is empty when the Service leaves the class to the hub."""

    scenario: Scenario
    class_name: str = ""


class NotOurs(msgspec.Struct, frozen=True):
    """Leave it alone; what we exported for it before goes. ``why`` is for logs and reasons of deletes."""

    why: str


class Refused(msgspec.Struct, frozen=True):
    """It asks for us and cannot have it as it stands: ``sentence`` tells its author what to do instead.

    ``keep``: what was exported before stays (a wrong value must not take down what works); otherwise it goes,
    because the Service has become something that no longer has a load balancer.
    """

    reason: ConditionReason
    sentence: str
    keep: bool


Decision = Ours | NotOurs | Refused
