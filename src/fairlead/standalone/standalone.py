"""One machine as a hub: hub and regions in this process, API and Envoy beside it, one directory for everything.

    DIR   the API's state and its kubeconfig        DIR/hub   Envoy's files and the hub's name

In: ``StandaloneSettings``. Out: ``run_standalone`` returns after a clean stop. Envoy goes on serving when it ends,
except with ``stop_proxy``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from fairlead.runtime.supervisor import Supervisor
from fairlead.standalone.api_process import ApiProcess
from fairlead.standalone.capi_process import spawn_capi
from fairlead.standalone.hub_process import run_hub
from fairlead.standalone.hub_settings import HubSettings
from fairlead.standalone.identity import kept_identity
from fairlead.standalone.regions_process import spawn_regions


class StandaloneSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The options of ``fairlead standalone``."""

    data_dir: Path
    host: str
    port: int
    address_pool: str
    domain: str = ""
    metrics: tuple[str, int] | None = None
    stop_proxy: bool = False
    #: Whether the controller for Cluster API runs in it, too.
    capi: bool = False
    #: More of the command line of the API server, which logs as we do.
    api_options: tuple[str, ...] = ()

    def check(self) -> None:
        """Raise ``BadConfiguration`` for what cannot work, before anything is started."""
        self.hub(self.data_dir / "kubeconfig").check()

    def hub(self, kubeconfig: Path) -> HubSettings:
        """Return the settings of the hub in it."""
        return HubSettings(
            kubeconfig=kubeconfig,
            data_dir=self.data_dir / "hub",
            address_pool=self.address_pool,
            domain=self.domain,
            metrics=self.metrics,
            stop_proxy=self.stop_proxy,
        )


async def run_standalone(settings: StandaloneSettings, *, ready: Callable[[Path], None]) -> None:
    """Run everything until SIGTERM; ``ready`` gets the kubeconfig once load balancers are served."""
    api = ApiProcess(settings.data_dir, settings.host, settings.port, options=settings.api_options)
    async with api:
        supervisor = Supervisor(stop_deadline_s=4.0)
        supervisor.spawn("api", api.run)
        spawn_regions(supervisor, api.kubeconfig, identity=kept_identity(settings.data_dir))
        if settings.capi:
            spawn_capi(supervisor, api.kubeconfig, identity=kept_identity(settings.data_dir))
        await run_hub(settings.hub(api.kubeconfig), supervisor=supervisor, ready=lambda: ready(api.kubeconfig))
