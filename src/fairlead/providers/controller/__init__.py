"""Providers that have another controller of the hub's cluster serve: as Ingresses, or as Gateways with their routes."""
