"""The L7 part of the Envoy provider: what Envoy does with a request of an ``L7Config``.

In: listeners, routes, backends and certificates of one load balancer. Out: listeners with filter chains by SNI, route
configurations (RDS), clusters, and secrets (SDS). Never: input or output, or a decision about what should be served.
"""
