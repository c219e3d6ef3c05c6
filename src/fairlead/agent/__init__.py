"""The agent: exports a member's Services and nodes to the hub, and brings addresses and refusals back.

Pure files answer one question each: ``ownership`` (is this Service ours), ``wishes`` (what does it ask for),
``advice`` (what should its author know), ``nodes`` and ``slices`` (which targets), ``export`` (what should the hub
have), ``plan`` (what has to be written), ``feedback`` (what should the Service show).
The others do the work: ``exporter``, ``node_exporter``, ``feedback_writer``, and ``app``, which wires them up.
"""
