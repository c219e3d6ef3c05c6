"""Intents: the kinds that ask for a load balancer, one folder for each."""
