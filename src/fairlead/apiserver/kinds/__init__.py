"""The served kinds, and what each built-in one does beyond its schema."""
