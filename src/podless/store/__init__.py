"""The stored objects: state in memory, a journal on disk (or none), history for watches."""
