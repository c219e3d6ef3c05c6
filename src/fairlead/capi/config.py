"""The settings of the controller for Cluster API.

In: the command line. Out: frozen settings, checked. Never reads files or the environment.
"""

from __future__ import annotations

import msgspec

from fairlead.errors import BadConfiguration


class CapiConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the controller.

    ``reclaim_lease``: no other process can have this identity, so a restart leads again at once. ``look_s``: how often
    the API is asked which kinds of Cluster API it serves. ``probe_s``: how often an endpoint is probed.
    """

    identity: str
    workers: int = 8
    lease_s: float = 15.0
    reclaim_lease: bool = False
    install_crds: bool = True
    look_s: float = 3.0
    probe_s: float = 10.0

    def check(self) -> None:
        """Validate the settings.

        Raises:
            BadConfiguration: a setting is invalid; the message names it.
        """
        if self.workers < 1:
            raise BadConfiguration(f"--workers is {self.workers}: it must be at least 1.")
