"""Authentication and authorization: tokens, service accounts and RBAC."""
