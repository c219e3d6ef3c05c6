"""The checks of ``fairlead doctor`` and the support bundle of ``fairlead collect``.

Gatherers read clusters and the machine into facts; checks look at facts only, and a table lists them.
"""
