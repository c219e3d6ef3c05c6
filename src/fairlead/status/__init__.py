"""The rows and sentences about a fleet that ``fairlead status`` and the page show.

In: objects of the hub's API. Out: rows, and one sentence for each thing that is not well, with the next command in it.
Never: reads an API or a clock, or prints anything.
"""
