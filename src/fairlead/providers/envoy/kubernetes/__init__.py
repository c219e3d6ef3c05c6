"""The hub's proxies as Deployments in its own cluster: objects, certificates, and the provider that joins them.

provider              an EnvoyProvider whose fleet is in Kubernetes
fleet                 which objects each load balancer and each group of proxies needs
manifests             these objects as JSON (pure)
objects               keeps them in the cluster, written by the leader
certificates          authority, server and client certificates, and the Secrets that have them
health_exchange       what the proxies of the other hub replicas report about their targets
"""
