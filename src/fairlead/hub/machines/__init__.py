"""Proxy machines at the hub: how they join, their plans and their reports.

    token ─► enrol ─► certificate ─► plan ─► report ─► ProxyMachine.status, Lease

To understand it, read ``Machines`` in ``control.py``; ``server.py`` is its HTTPS.
"""
