"""Our layer 2: PoolServices of our classes become TCPLoadBalancers that a hub serves, and their status comes back.

watch      the caches, and which PoolServices a change enqueues
view       all that the decision about one PoolService depends on
translate  view ─► TCPLoadBalancer and EndpointSlices, or why not          (pure)
status     TCPLoadBalancer ─► status of the PoolService                    (pure)
finalize   what has to be gone before the finalizer goes
reconcile  one key: hold, view, translate, publish, status; or finalize
"""
