"""Whole processes, composed from the parts: hub, agent, regions, API, and all of them on one machine."""
