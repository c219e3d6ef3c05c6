"""A HAProxy that users run and configure, driven through its Runtime API.

``settings`` reads the parameters, ``names`` says which servers are ours, ``runtime_api`` is the only door to the
socket, ``snapshot`` parses what HAProxy prints, ``readback`` reads a backend, ``commands`` turns one change into
commands, ``batch`` sends and verifies many, ``watch`` notices reloads and drift, ``provider`` joins them.
Source: https://docs.haproxy.org/2.6/management.html#9.3
"""
