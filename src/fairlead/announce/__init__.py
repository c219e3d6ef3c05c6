"""Announcers: how the network learns which proxy machine an address is at.

In: the plan of this machine, and which of its addresses it can serve. Out: ARP, neighbour discovery and routes, and the
state of each address. Never: a decision about which machines an address has; the hub records that.
"""
