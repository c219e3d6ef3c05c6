"""The stories of the demos: steps that act, wait for what is promised, and check it."""
