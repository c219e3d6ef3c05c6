"""The engine between the desired state (``translate/``) and the recorded state (the ledger).

    put(desired) ──► tracker ──dirty keys──► plan ──rows──► guard ──► order ──► worker ──► provider
                        ▲                                                          │
                        └───────────────── apply only what succeeded ──────────────┘

``plan`` (tracker, plan, guard and the order of the rows) and ``history`` are pure: no clock, no log, no await.
``worker`` takes dirty keys and says when to retry. ``execute`` makes the calls, limits and batches them, and parks
what the provider rejects. ``readback`` brings what others changed back into the tracker.
"""
