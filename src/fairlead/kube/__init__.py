"""The only door to a Kubernetes API: requests, watch caches, writes, leases, Events, kubeconfig.

Here, and only here, "cluster" means the Kubernetes cluster at the other end of a connection.
"""
