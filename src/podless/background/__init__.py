"""Controllers of the server itself: garbage collection, emptying of namespaces, tokens."""
