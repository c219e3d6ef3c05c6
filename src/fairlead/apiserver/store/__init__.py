"""Where do the objects live? State in memory, a journal on disk (or none), history for watches."""
