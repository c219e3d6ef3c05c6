"""The status of a TCPLoadBalancer: how many targets are ready and healthy, and ports beside each address."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fairlead.api.kubernetes import Ingress, PortStatus
from fairlead.api.meta import WireCondition
from fairlead.api.tcploadbalancer import TCPLoadBalancer, TCPLoadBalancerStatus
from fairlead.hub.intents.conditions import ingress_of
from fairlead.hub.intents.status_rules import StatusRules
from fairlead.hub.intents.target_counts import shown_targets
from fairlead.model.observed import Observed
from fairlead.translate.view import Translation


class TCPStatus(StatusRules[TCPLoadBalancer, Translation]):
    """The rules for the status of TCPLoadBalancers; the record (``accepted_status``) has its own field managers."""

    counts = (*StatusRules.counts, "targets")
    owned_elsewhere = (*StatusRules.owned_elsewhere, "accepted", "names", "provider", "frontends")

    def compose(
        self, obj: TCPLoadBalancer, translation: Translation, conditions: list[WireCondition], observed: Observed | None
    ) -> TCPLoadBalancerStatus:
        """Return the status with the number of targets: healthy of all when they are checked, else ready of all."""
        status = super().compose(obj, translation, conditions, observed)
        return msgspec.structs.replace(status, targets=shown_targets(translation.targets, observed))

    def ingress(self, obj: TCPLoadBalancer, addresses: Sequence[str]) -> list[Ingress]:
        """Return ``addresses`` with the ports that are served."""
        ports = [PortStatus(port.port, port.protocol) for port in (obj.status.accepted or obj.spec).ports]
        return [ingress_of(address, ports) for address in addresses]
