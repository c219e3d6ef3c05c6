"""Ingresses with the annotations of ingress-nginx, as objects of Gateway API. Pure."""
