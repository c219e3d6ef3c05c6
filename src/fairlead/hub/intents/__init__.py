"""Intents: the kinds of objects that request a load balancer, one module for each kind."""

from __future__ import annotations

from fairlead.hub.intents.global_service import GlobalIntent
from fairlead.hub.intents.hostname import HostnameIntent
from fairlead.hub.intents.http import HTTPIntent
from fairlead.hub.intents.intent import MakeIntent
from fairlead.hub.intents.loadbalancer import LoadBalancerIntent
from fairlead.hub.intents.tcp import TCPIntent

#: Every kind that a hub serves. To add a kind, add its class here.
INTENTS: tuple[MakeIntent, ...] = (TCPIntent, HTTPIntent, LoadBalancerIntent, HostnameIntent, GlobalIntent)
