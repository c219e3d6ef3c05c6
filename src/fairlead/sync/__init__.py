"""The engine between two models: what should be (``build/``) and what was done (the ledger).

    put(desired) ──► tracker ──dirty keys──► plan ──rows──► guard ──► order ──► worker ──► provider
                        ▲                                                          │
                        └───────────────── fold back only what succeeded ──────────┘

``tracker``, ``plan``, ``guard`` and ``order`` are pure: no clock, no log, no await. Only ``worker`` does anything.
"""
