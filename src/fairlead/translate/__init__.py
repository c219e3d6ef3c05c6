"""From the observed to the desired state: a view in, a desired load balancer and conditions out.

Pure: the same view always gives the same result, whatever the order of its parts. Bad input becomes a reason and a
message, never an exception. Never: a provider's name, a clock or a cluster connection.
"""
