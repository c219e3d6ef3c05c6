"""The command line: one file per group of verbs, each of which imports what it needs only when it is called."""
