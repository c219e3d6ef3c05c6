"""Support for the tests of providers, and of Fairlead itself; the product never imports it.

builders   objects as an API server sends them, and desired load balancers
faults     a provider wrapper that injects failures and latency
ledger     an in-memory ledger that outlives a simulated process
simulation tracker, worker and provider of one process in virtual time, which may crash at any call
contract   the tests that every provider has to pass
"""
