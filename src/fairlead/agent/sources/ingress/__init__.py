"""Ingresses and their classes as a source of the agent."""
