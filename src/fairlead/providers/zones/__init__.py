"""Names as load balancers: the records of a Hostname are its targets, a zone of a DNS server is where they go.

``rrsets`` and ``marks`` say what is in a zone and whose it is, ``plan`` turns changes into edits of single records,
``settings`` reads the parameters, ``zone_server`` is what one kind of server must be able to do, ``provider`` joins
them; ``rfc2136``, ``powerdns`` and ``external_dns`` are the servers.
"""
