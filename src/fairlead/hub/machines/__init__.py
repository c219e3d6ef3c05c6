"""Proxy machines at the hub: how they join, what they are told, and what they report.

    token ─► enrol ─► certificate ─► plan ─► report ─► ProxyMachine.status, Lease

To understand it, read ``Machines`` in ``control.py``; ``server.py`` is its HTTPS.
"""
