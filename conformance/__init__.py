"""The official conformance suite of Gateway API against ``fairlead run``: build it, run it, judge it, write it down."""
