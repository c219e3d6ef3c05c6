"""The steps of the demos: each acts, waits for the expected effect, and checks it."""
