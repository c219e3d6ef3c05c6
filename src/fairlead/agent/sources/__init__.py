"""The sources of the agent: requests of the member for load balancers, and what they share."""
