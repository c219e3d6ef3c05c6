"""Create, update, apply and delete objects, free of HTTP."""
