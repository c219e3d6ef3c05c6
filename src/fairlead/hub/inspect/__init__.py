"""Read-only views of the hub's work: preview, exclusions, orphans, metrics."""
