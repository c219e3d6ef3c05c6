"""PowerDNS Authoritative Server, through its HTTP API."""
