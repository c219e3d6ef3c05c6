"""The process on a proxy machine: it joins a hub, runs Envoy and the announcers, and needs no hub to continue.

state       the state directory: certificate, plan, and whose machine it is
snapshot    the xDS resources that Envoy has acknowledged, on disk
relay       Envoy's streams: forwarded to the hub, or answered from the snapshot
hub_client  HTTPS to the hub: enrol, renew, plan, report
kernel      load balancers that the kernel forwards, and checks of their targets
kernel_maps the nftables maps of these
upgrade     another Envoy binary, and back if it does not serve
checks      what this machine can do, and whether Envoy serves an address
announcing  follow the plan, announce what Envoy serves, report; a hub uses it for its own machine, too
app         ``join`` and ``run``: all of it, supervised
"""
