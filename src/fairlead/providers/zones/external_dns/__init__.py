"""external-dns of the hub's cluster: records are DNSEndpoint objects, which it writes wherever it can write."""
