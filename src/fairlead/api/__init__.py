"""Wire types: our own kinds, and the parts of Kubernetes' kinds that we read, as msgspec structs.

In: JSON bytes of an API server. Out: the same as frozen values, and the CustomResourceDefinitions made from them.
Only fields that Fairlead reads are declared: everything else is skipped while decoding, which is what makes it fast.
Nothing here ever talks to a server.
"""
