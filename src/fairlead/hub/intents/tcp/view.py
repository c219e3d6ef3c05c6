"""The view of one TCPLoadBalancer: what every kind has (``member_views``), and the slices labelled with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fairlead.api.tcploadbalancer import TCPLoadBalancer, TCPLoadBalancerSpec
from fairlead.hub.intents.member_views import MemberViews
from fairlead.hub.tenants.address_allocator import listeners_of
from fairlead.model.condition import Condition
from fairlead.model.families import IPV4
from fairlead.model.keys import ListenerKey
from fairlead.translate.validate import validate_tcp
from fairlead.translate.view import TCPView


class TCPViews(MemberViews[TCPLoadBalancer, TCPView]):
    """Gathers the views of TCPLoadBalancers."""

    default_families = (IPV4,)

    def make(self, obj: TCPLoadBalancer, common: Mapping[str, Any]) -> TCPView:
        """Return the view of ``obj`` with the slices that carry its label."""
        return TCPView(load_balancer=obj, slices=self.inventory.slices_of(common["key"]), **common)

    def listeners(self, spec: TCPLoadBalancerSpec) -> Sequence[ListenerKey]:
        """Return the ports that ``spec`` opens, in its own order."""
        return listeners_of(spec)

    def refusal(self, view: TCPView) -> Condition | None:
        """Return why the present spec cannot be served, None when it can."""
        return validate_tcp(view, view.load_balancer.spec)
