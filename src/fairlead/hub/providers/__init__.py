"""The providers of one hub: made, run, restored after a restart, changed one for another."""
