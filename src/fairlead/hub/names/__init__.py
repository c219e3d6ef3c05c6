"""Names: who owns which host name, and where it points."""
