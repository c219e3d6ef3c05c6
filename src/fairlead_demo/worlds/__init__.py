"""Testbeds of the demo and the end-to-end tests: real processes, networks and traffic on one machine.

    loopback    addresses and ports that nothing else on this machine uses
    netns       network namespaces; networks gives each region one of its own
    processes   programs that are started, watched and killed; guard ends what is left of them
    apis        an API server for each cluster
    fleet       a hub and its members        regions    one cluster whose regions have a hub each
    proxy_machines  proxy machines, a hub and a client on one subnet, each in a network namespace
    workload    pods that serve HTTP (``pod_server``) and the objects a cluster would have for them (``objects``)
    web         the objects that users create for HTTP: Ingresses, Gateways, certificates
    attempts    connections of a client in a namespace, each with its time and what became of it
    traffic     continuous requests with counters; https_client opens their connections for TLS
    name_servers  BIND 9        acme_server  an ACME server        machines  the machines of a Cluster API cluster
    certificates and clusterapi_kinds make objects and definitions that these need

Never imports a test framework: ``make demo`` installs none.
"""
