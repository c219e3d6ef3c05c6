"""Hostnames, and the DNSZones that hold them."""
