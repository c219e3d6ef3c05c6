"""What is wrong with this installation, and which command mends it? The room of ``fairlead doctor`` and ``collect``.

Gatherers read clusters and the machine into facts; checks look at facts only, and a table lists them.
"""
