"""How does a patch change an object? JSON patch, merge patch, strategic merge patch and server-side apply."""
