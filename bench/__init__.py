"""What Fairlead costs, as commands that print figures next to their limits: ``make bench``."""
