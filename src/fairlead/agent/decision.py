"""Decisions about a Service: ours, not ours, or refused with a sentence for its author.

In: nothing. Out: the values that ``ownership`` and ``export`` return. Never an exception.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from fairlead.publish.publication import Refused


class Scenario(IntEnum):
    """The scenario of a Service, numbered as in the design: it decides where its backends are and what we may write."""

    #: NodePort with the annotation: backends are the nodes; the address goes into an annotation.
    NODE_PORT = 1
    #: LoadBalancer of the member's own cloud, with the annotation: the backend is that load balancer.
    CLOUD = 2
    #: LoadBalancer that no other controller implements: backends are nodes or pods; the status is ours to write.
    IMPLEMENTED = 3


class Ours(msgspec.Struct, frozen=True):
    """Export it. ``class_name`` is empty when the Service leaves the class to the hub."""

    scenario: Scenario
    class_name: str = ""


class NotOurs(msgspec.Struct, frozen=True):
    """Leave it alone; what we exported for it before goes. ``why`` is for logs and reasons of deletes."""

    why: str


Decision = Ours | NotOurs | Refused
