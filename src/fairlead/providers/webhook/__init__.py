"""Load balancers behind a driver that speaks the LBCF webhook protocol.

``settings`` reads the parameters of the class, ``protocol`` encodes requests and decodes answers, ``client`` is the
only access to the network, ``load_balancers`` turns changes of load balancers and backends into calls and keeps their
state until the ledger has stored it, and ``provider`` joins them.
Source: https://github.com/tkestack/lb-controlling-framework/blob/master/docs/design/lbcf-webhook-specification.md
"""
