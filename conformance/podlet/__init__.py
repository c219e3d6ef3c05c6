"""One process that is a node, its kubelet and every pod on it, without containers.

It binds Pods to its node, gives each an address, answers there as the pod's image would, and reports it ready.
"""
