"""Validation by providers, and protection of classes in use."""
