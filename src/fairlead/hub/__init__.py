"""The hub: turns the requests of members into load balancers.

    inventory ─► view ─► decide ─► record ─► tracker ─► worker ─► provider
                            └─► status: conditions, Events, addresses

To understand the hub, read ``Reconciler`` in ``app.py``: one step for one key.
"""
