"""The domain-free engine: clock, keyed queue, reconcile loop, supervisor, rate limit, logs and metrics."""
