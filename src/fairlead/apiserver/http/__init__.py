"""How do requests reach the registry, and answers the clients? Everything that knows HTTP."""
