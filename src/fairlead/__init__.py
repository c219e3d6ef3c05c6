"""Fairlead: the load balancer control plane for Kubernetes fleets."""

__version__ = "0.2.0"
