"""The demos: ``stories`` has their steps, ``worlds`` their processes and networks, ``run`` plays them."""

__version__ = "0.2.0"
