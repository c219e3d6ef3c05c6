"""TCPLoadBalancer as an intent: one L4 load balancer that an agent or a region asks for on behalf of a Service."""

from __future__ import annotations

from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.hub.intents.intent import IntentContext
from fairlead.hub.intents.member_intent import MemberIntent
from fairlead.hub.intents.tcp.objects import TCPObjects
from fairlead.hub.intents.tcp.status import TCPStatus
from fairlead.hub.intents.tcp.view import TCPViews
from fairlead.translate.tcp import translate_tcp
from fairlead.translate.view import TCPView, Translation


class TCPIntent(MemberIntent[TCPView]):
    """TCPLoadBalancers."""

    def __init__(self, context: IntentContext) -> None:
        self._tcp_objects = TCPObjects(context.cluster, context.inventory)
        rules = TCPStatus(cluster=context.cluster, events=context.events, resource=TCP_LOAD_BALANCERS)
        super().__init__(context, views=TCPViews(context, self._tcp_objects), rules=rules)

    def watch(self) -> None:
        """Subscribe to slices and Tenants."""
        self._tcp_objects.watch()

    def translate(self, view: TCPView) -> Translation:
        """Return what ``view`` comes to."""
        return translate_tcp(view)
