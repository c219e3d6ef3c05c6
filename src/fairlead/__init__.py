"""Fairlead: the load balancer control plane for Kubernetes fleets."""

__version__ = "0.1.0"
