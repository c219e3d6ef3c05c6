"""What each field of our kinds means, one module for each family of kinds."""
