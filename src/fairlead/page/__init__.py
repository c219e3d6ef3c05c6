"""The web page of a hub: what it serves, what is wrong, why, and what mends it, live; it changes nothing."""
