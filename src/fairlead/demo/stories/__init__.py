"""What each demo shows: steps that act, wait for what is promised, and check it."""
