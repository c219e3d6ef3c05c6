"""``fairlead crds``: what must an administrator install at a hub, should Fairlead not be allowed to?"""

from __future__ import annotations

import sys


def crds() -> None:
    """Print all CustomResourceDefinitions as YAML: [cyan]fairlead crds | kubectl apply -f -[/cyan]."""
    import yaml

    from fairlead.api.kinds import all_crds

    yaml.safe_dump_all(all_crds(), sys.stdout, sort_keys=False, explicit_start=True, width=120)
