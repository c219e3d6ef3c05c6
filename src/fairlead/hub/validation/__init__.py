"""What a provider, or a class in use, does not allow."""
