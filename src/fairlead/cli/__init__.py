"""The command line: one file per group of verbs, which imports what it needs when a verb is called."""
