"""Envoy as a provider: listeners, clusters and endpoints served over delta xDS, and the proxies that read them.

``translate`` turns our model into bytes, ``store`` holds them, ``session`` speaks the protocol of one stream,
``server`` carries it over gRPC, ``fleet_local`` and the package ``kubernetes`` run the proxies, ``provider`` joins all
of it. Only in this package may Envoy's own terms be used.
"""
