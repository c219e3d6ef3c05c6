"""Gateway API: the Gateways and routes of a member as load balancers and routes at the hub."""
