"""A deterministic simulator of the whole control plane: ``python -m tests.simulate``."""
