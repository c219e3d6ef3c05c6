"""The kinds of load balancers: what a step does for each of them, it does for a kind that is added here."""

from __future__ import annotations

from fairlead.api.hostname import HOSTNAMES
from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS
from fairlead.api.intent import IntentObject
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.meta import Resource
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS

LOAD_BALANCER_KINDS: tuple[Resource[IntentObject], ...] = (TCP_LOAD_BALANCERS, HTTP_LOAD_BALANCERS, LOAD_BALANCERS)
#: Everything that asks for a load balancer, also for one of records.
INTENT_KINDS: tuple[Resource[IntentObject], ...] = (*LOAD_BALANCER_KINDS, HOSTNAMES)
