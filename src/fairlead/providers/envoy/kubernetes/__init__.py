"""The hub's proxies as Deployments in its own cluster: objects, certificates, and the provider that joins them.

provider              an EnvoyProvider whose fleet is in Kubernetes
fleet                 which objects each load balancer and each group of proxies needs
*_manifests           these objects as JSON (pure)
objects               keeps them in the cluster, written by the leader
certificates          authority, server and client certificates (pure)
authority             the shared Secrets in fairlead-system, and the files that the xDS server reads
client_certificates   one Secret for each group of proxies
health_exchange       what the proxies of the other hub replicas see of their targets, as health_report has it
peers                 what the proxies of the other hub replicas have acknowledged
"""
