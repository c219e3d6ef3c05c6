"""The hub's proxies as Deployments in its own cluster: objects, certificates, and the provider that brings them along.

provider     an EnvoyProvider whose fleet is in Kubernetes
objects      what is to be in the cluster, kept so by whoever leads
certificates who may talk to whom: authority, server and client certificates (pure)
authority    the shared Secrets in fairlead-system, and the files that the xDS server reads
client_certificates   one Secret for each group of proxies
peers        what the proxies of the other hub replicas have acknowledged
"""
