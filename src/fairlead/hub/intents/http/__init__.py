"""HTTPLoadBalancers with their LoadBalancerRoutes and certificates."""
