"""The providers of one hub: creation, operation, restoration after a restart, and migration between them."""
