"""The vocabulary: frozen values, no input or output, no clock.

In: nothing of the project but ``errors``. Out: the types that every other package uses.
Nothing here ever reads a cluster, logs, sleeps or knows Envoy.
"""
