"""From what is seen to what should be: a View in, a desired load balancer and conditions out.

Pure: the same view always gives the same answer, whatever the order of its parts. Bad input becomes a reason and a
sentence, never an exception. Nothing here knows a provider's name, a clock or a cluster connection.
"""
