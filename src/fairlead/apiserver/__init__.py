"""What does Fairlead use where there is no Kubernetes? An embedded, Kubernetes-compatible API server.

In: HTTP requests of kubectl, of client libraries and of Fairlead itself. Out: the answers of a Kubernetes API server.
It runs no controllers but garbage collection, no pods and no admission webhooks.
"""

from fairlead.apiserver.server import ApiServer

__all__ = ["ApiServer"]
