"""Load balancers behind a driver that speaks the LBCF webhook protocol.

``settings`` reads the class's parameters, ``protocol`` knows the words on the wire, ``credentials`` and ``client`` are
the only door to the network, ``backends`` turns one row of a plan into calls, ``provider`` joins them.
Source: https://github.com/tkestack/lb-controlling-framework/blob/master/docs/design/lbcf-webhook-specification.md
"""
