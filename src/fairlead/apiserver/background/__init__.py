"""What the server does by itself: collect garbage, empty namespaces, fill in tokens."""
