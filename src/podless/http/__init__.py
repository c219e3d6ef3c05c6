"""Everything that knows HTTP: from requests to the registry, and from there to answers."""
