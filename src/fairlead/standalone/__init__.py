"""Whole processes, composed from the parts: hub, agent, API, all of them on one machine, and the demo."""
