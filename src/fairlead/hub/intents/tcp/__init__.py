"""TCPLoadBalancer: what an agent or a region writes at the hub for a Service."""
