"""Publishing at a hub: the TCPLoadBalancers and EndpointSlices that agents and regions write there.

    canonical   the one form in which an object is compared
    identity    names and labels: which object was published for which origin
    plan        desired and present objects ─► writes with reasons            (pure)
    compare     what differs between two objects, in a few words              (pure)
    wire        objects ─► JSON for server-side apply                         (pure)
    caches      the watch caches of what is published
    publisher   writes ─► requests; reads answer with our own last writes on top

In: what a translation of the agent or of regions wants. Out: requests to the hub's API server, only where something
differs. Never decides what should be published, or changes an object that was published for something else.
"""
