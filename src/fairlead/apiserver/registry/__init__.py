"""What may happen to an object? Create, update, apply and delete, free of HTTP."""
