"""Read-only views of what the hub does: preview, exclusions, orphans, metrics."""
