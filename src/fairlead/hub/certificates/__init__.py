"""Certificates of an ACME authority: ordered, proven, renewed, and written as Secrets beside load balancers."""
