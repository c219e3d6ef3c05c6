"""The agent: exports a member's Services and nodes to the hub, and copies addresses and refusals back.

Pure files answer one question each: ``ownership`` (is this Service ours),
``warnings`` (what should its author know), ``nodes`` and ``slices`` (which backends), ``export`` (what should the hub
have), ``feedback`` (what should the Service show).
The others do the work: ``exporter``, ``node_exporter``, ``feedback_writer``, and ``app``, which wires them up.
"""
