"""Certificates of an ACME authority: ordered, proven, renewed, and written as Secrets next to load balancers."""
