"""The web page of a hub: what it serves, what is wrong, why, and how to fix it, live."""
