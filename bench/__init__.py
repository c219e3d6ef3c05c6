"""What Fairlead costs, as commands that print figures beside their limits: ``make bench``."""
