"""The demos: ``stories`` has their steps, ``run`` runs them with parts of ``fairlead.testing``, ``progress`` prints."""
