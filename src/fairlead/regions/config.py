"""The settings of regions.

In: the command line. Out: frozen settings, checked. Never reads files or the environment.
"""

from __future__ import annotations

import msgspec

from fairlead.errors import BadConfiguration


class RegionsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of regions. ``workers`` is for each controller; ``balancer`` off leaves layer 2 wholly to others.

    ``reclaim_lease``: no other process can have this identity, so a restart leads again at once. ``look_s``: how often
    the API is asked for OpenYurt's NodePools.
    """

    identity: str
    workers: int = 3
    balancer: bool = True
    lease_s: float = 15.0
    reclaim_lease: bool = False
    install_crds: bool = True
    look_s: float = 30.0

    def check(self) -> None:
        """Refuse what cannot work.

        Raises:
            BadConfiguration: names the setting.
        """
        if self.workers < 1:
            raise BadConfiguration(f"--workers is {self.workers}: it must be at least 1.")
