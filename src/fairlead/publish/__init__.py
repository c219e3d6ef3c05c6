"""Publishing at a hub: the objects that agents and regions write there.

    service      a Service ─► options and spec of its load balancer, or why it has none     (pure)
    objects      desired and present objects ─► writes with reasons                         (pure)
    publisher    writes ─► requests; reads answer with the own last writes on top

In: what a source of the agent or the balancer of regions wants. Out: requests to the hub's API server, only where
something differs. Never: decides what should be published, or changes an object that was published for something else.
"""
