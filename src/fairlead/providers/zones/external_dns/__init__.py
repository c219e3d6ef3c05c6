"""external-dns of the hub's cluster: records are objects that it reads, and writes wherever it can write."""
