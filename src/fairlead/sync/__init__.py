"""The engine between the desired state (``translate/``) and the recorded state (the ledger).

    put(desired) ──► tracker ──dirty keys──► plan ──rows──► guard ──► order ──► worker ──► provider
                        ▲                                                          │
                        └───────────────── fold back only what succeeded ──────────┘

``tracker``, ``plan``, ``guard`` and ``order`` are pure: no clock, no log, no await. Only ``worker`` does anything, with

    quarantine    what the provider refuses for good, and so is not in a plan
    execute       the calls, intent first; ``batching`` makes few of many, ``concurrency`` limits each failure domain
    readback      what others changed, on the way back into the tracker
    backlog       what waits, and since when
"""
