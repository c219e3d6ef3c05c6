"""What the tests of the book of addresses share: a book, load balancers, and a restart."""

from __future__ import annotations

from fairlead.hub.tenants.addresses import AddressAllocator, listeners_of
from fairlead.model.contract import AllocationKind
from fairlead.runtime.clock import VirtualClock
from fairlead.testing.builders import lb_key, tcp
from fairlead.translate.addresses import AddressRanges

ADDRESS, PROXY_PORT = AllocationKind.ADDRESS, AllocationKind.PROXY_PORT
POOL = "192.0.2.0/29"  # six addresses


class Book(AddressAllocator):
    """A book, and who was woken since that was asked last."""

    def __init__(self, pool):
        self.clock = VirtualClock()
        self._woken = set()
        super().__init__(pool, clock=self.clock, wake=lambda keys, _cause: self._woken.update(keys))

    def woken(self):
        woken, self._woken = self._woken, set()
        return woken


def book_of(text=POOL):
    return Book(AddressRanges.parse(text) if text else None)


def load_balancer_named(name, *, address="", ports=(80,), namespace="tenant-east", recorded=None):
    spec = {"address": address} if address else None
    status = {"allocation": recorded} if recorded else None
    text = [{"port": port, "nodePort": 30000 + port} for port in ports]
    return tcp(name, namespace=namespace, ports=text, spec=spec, status=status)


def key_of(load_balancer):
    return lb_key(load_balancer.metadata.name, namespace=load_balancer.metadata.namespace)


def give(book, load_balancer, kind=ADDRESS):
    spec = load_balancer.spec
    recorded, listeners = load_balancer.status.allocation, listeners_of(spec)
    return book.allocate(key_of(load_balancer), kind, requested=spec.address, recorded=recorded, listeners=listeners)


def restarted(book, given_):
    """Return the book of the next process: everything recorded is read before anything is given away."""
    again = Book(None)
    again.use(book.pools, "restart")
    for load_balancer, allocation in given_:
        again.hold(key_of(load_balancer), allocation, listeners_of(load_balancer.spec))
    return again
