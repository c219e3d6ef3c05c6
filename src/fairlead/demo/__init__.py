"""The demos: stories in ``stories`` about worlds of ``fairlead.testing``, shown by ``show`` and played by ``run``."""
