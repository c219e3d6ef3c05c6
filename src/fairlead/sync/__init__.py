"""The engine between the desired state (``translate/``) and the recorded state (the ledger).

    put(desired) ──► tracker ──dirty keys──► plan ──rows──► guard ──► order ──► worker ──► provider
                        ▲                                                          │
                        └───────────────── apply only what succeeded ──────────────┘

``tracker``, ``plan`` (with the guard and the order of its rows) and ``history`` are pure: no clock, no log, no await.
``worker`` takes dirty keys and says when to retry, ``execute`` makes the calls and parks what the provider rejects,
``calls`` limits and batches them, and ``readback`` brings what others changed back into the tracker.
"""
