"""Regions: one Service, one access point per region.

    layer 1  pool_service    Service                         ─► one PoolService for each matching NodePool
             pool_endpoints  EndpointSlice, Node, NodePool   ─► only the PoolServices that they concern
             access_points   PoolService status              ─► the union in the Service's status
    layer 2  balancer        PoolServices of our own classes ─► TCPLoadBalancers, which a hub serves

The layers meet in the PoolService object and nowhere else: layer 1 never calls a load balancer and does not know who
implements a class; layer 2 could be any other controller. ``source``, ``backends``, ``region_plan``, ``access_plan``
and ``balancer_plan`` are pure; ``inventory`` has the caches, and ``app`` and ``balancer`` write.
"""
