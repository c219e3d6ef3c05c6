"""The hub: where what members ask for becomes load balancers.

    inventory ─► views ─► reconcile ─► translate ─► tracker ─► worker ─► provider
                              └─► status: conditions, Events, addresses

To understand the whole of it, read ``reconcile.py``.
"""
