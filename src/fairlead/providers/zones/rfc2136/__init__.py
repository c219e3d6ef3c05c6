"""DNS servers that take dynamic updates (RFC 2136), signed with TSIG (RFC 8945): BIND, Knot, NSD's peers, Windows."""
