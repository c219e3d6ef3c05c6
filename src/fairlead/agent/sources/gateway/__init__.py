"""Gateway API as a source of the agent: Gateways, ListenerSets, routes and policies."""
