"""A Kubernetes-compatible API server in one process, for programs and installations without a Kubernetes cluster.

In: HTTP requests of kubectl and of client libraries. Out: the answers of a Kubernetes API server.
It runs no controllers but garbage collection, no pods and no admission webhooks.

It behaves as kube-apiserver 1.36, and the contract tests hold it to a real one. What is different:

* It has a plain HTTP port in addition to the TLS one. Without credentials only health and version can be read: 401
  elsewhere, as with ``--anonymous-auth=false``.
* Responses are JSON, whatever ``Accept`` says; protobuf bodies are read, and written for ``/openapi/v2`` only.
* Revoked tokens and deleted bindings have effect at once; kube-apiserver caches them for some seconds.
* The watch history is short and ends with the process: older resourceVersions get 410 Expired. So does a watch from a
  resourceVersion in the future, instead of waiting for it, so that a client notices when the state was lost.
* A watch that allows bookmarks ends with one. A continue token is for its own list only.
* Dependents in another namespace never hold up the deletion of their owner. A token Secret may be older than its
  account.
* A CRD's rules are compiled when it is created, but not type-checked, and have no cost limit: a real server may refuse
  a definition that this one takes. In refusals the order of causes may differ, and the texts of some parse errors do.
* Quantities are read back as they were written: ``cpu: 1`` does not become ``"1"``.
* A PUT of a custom resource may omit the resourceVersion. A CRD's scale subresource is not served. Keys that occur
  twice in a body are not reported: the last one counts. A custom resource that is created may omit its kind.
  Unknown fields of an apply patch are removed; a real server refuses the patch.
* A CRD that is being deleted has no condition Terminating.
* What a body and a namespace may hold is limited further (``bounds.py``), and so are the requests and watches of each
  user (``http/seats.py``).
"""

from podless.server import ApiServer

__all__ = ["ApiServer"]
__version__ = "0.2.0"
