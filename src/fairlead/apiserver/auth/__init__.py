"""Who is asking, and may they? Tokens, service accounts and RBAC."""
