"""Ingress and Gateway API of a member, translated into what the hub serves, and answered in their status."""
