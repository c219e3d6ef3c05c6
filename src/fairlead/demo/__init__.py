"""The demo: its worlds and its story, on one machine."""
