"""The hub: where what members ask for becomes load balancers.

    inventory ─► view ─► decide ─► record ─► tracker ─► worker ─► provider
                            └─► status: conditions, Events, addresses

To understand the hub, read ``Reconciler`` in ``app.py``: one step for one key.
"""
