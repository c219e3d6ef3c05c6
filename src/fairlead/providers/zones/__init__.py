"""Names as load balancers: the records of a Hostname are its targets, and a zone of a DNS server has them.

``settings`` reads the parameters and keys of a name, ``plan`` turns changes into edits of single records, ``answers``
and ``connection`` ask the authoritative server, and ``provider`` joins them. ``rfc2136``, ``powerdns`` and
``external_dns`` are the servers.
"""
