"""The sources of the agent: the member's requests for load balancers, and their shared parts."""
