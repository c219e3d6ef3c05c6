"""Descriptions of the fields of our kinds, one module for each family of kinds."""
