"""How patient is a process that has just been started? Not very: whoever started it is looking."""

from fairlead.kube.transport import RetryPolicy

#: Whether the API is there is found out in seconds; only a process that has begun its work is patient.
FIRST_CALLS = RetryPolicy(attempts=4, base_s=0.3, limit_s=2.0, deadline_s=20.0, connect_s=4.0, read_s=15.0)
