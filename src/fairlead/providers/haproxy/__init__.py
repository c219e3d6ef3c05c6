"""A HAProxy that users run and configure, driven through its Runtime API.

``settings`` reads the parameters of a load balancer, ``runtime_api`` is the only access to the socket, ``snapshot``
reads a backend and knows which servers are ours, ``commands`` turns changes into commands and verifies them, and
``provider`` joins them.
Source: https://docs.haproxy.org/2.6/management.html#9.3
"""
