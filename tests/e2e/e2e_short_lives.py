"""``fairlead``, whose hub signs certificates of proxy machines for a minute."""

from __future__ import annotations

from datetime import timedelta

from fairlead.cli.main import main
from fairlead.hub.machines import server

if __name__ == "__main__":
    endpoint = server.MachineEndpoint
    defaults = endpoint.__init__.__kwdefaults__
    assert defaults is not None
    defaults["certificate_life"] = timedelta(seconds=60)
    main()
