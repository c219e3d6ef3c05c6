"""LoadBalancer and the BackendGroups that name it."""
