"""Certificates for tests: those of the demo."""

from fairlead.testing.certificates import self_signed

__all__ = ["self_signed"]
