"""How long a process that has just been started waits for its API: seconds, because a person waits for the answer."""

from fairlead.kube.transport import RetryPolicy

#: Later calls are patient; these show at once that an API is not there.
FIRST_CALLS = RetryPolicy(attempts=4, base_s=0.3, limit_s=2.0, deadline_s=20.0, connect_s=4.0, read_s=15.0)
