"""What does the server do by itself? Collects garbage, empties namespaces, fills in tokens."""
