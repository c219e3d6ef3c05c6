"""Envoy as a provider: listeners, clusters and endpoints served over delta xDS, and the proxies that read them.

``connection_frontend`` (L4) and the package ``http`` (L7) turn our model into bytes, ``store`` holds them, ``session``
speaks the protocol of one stream, ``server`` carries it over gRPC, ``fleet_local`` and the package ``kubernetes`` run
the proxies, and ``provider`` joins all of it. Envoy's own terms are used only in this package.
"""
