"""Load balancers behind a driver that speaks the LBCF webhook protocol.

``settings`` reads the class's parameters, ``protocol`` knows the words on the wire, ``credentials`` and ``client`` are
the only door to the network, ``pauses`` leaves a driver alone for as long as it wishes, ``frontends`` and ``backends``
turn what is wished for into calls, ``batch`` makes many of them, ``verify`` reads back, ``provider`` joins them.
Source: https://github.com/tkestack/lb-controlling-framework/blob/master/docs/design/lbcf-webhook-specification.md
"""
