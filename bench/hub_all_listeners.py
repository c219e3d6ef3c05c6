"""``fairlead`` with twice as many load balancers for the open files that its Envoy may have.

Envoy keeps half of them for connections; a bench that makes next to none gives that half to listeners as well.
"""

from __future__ import annotations

from fairlead.cli.main import main
from fairlead.providers.envoy import fleet_local
from fairlead.providers.envoy.envoy_process import file_limit

if __name__ == "__main__":
    fleet_local.file_limit = lambda: 2 * file_limit()
    main()
