"""Load balancers behind a driver that speaks the LBCF webhook protocol.

``settings`` reads the class's parameters, ``protocol`` knows requests and answers, ``credentials`` and ``client`` are
the only door to the network, ``tasks`` and ``retry_after`` repeat a call when the driver allows it, ``load_balancers``
and ``backends`` turn the desired state into calls, ``batch`` makes many of them, ``verify`` reads back, ``provider``
joins them.
Source: https://github.com/tkestack/lb-controlling-framework/blob/master/docs/design/lbcf-webhook-specification.md
"""
