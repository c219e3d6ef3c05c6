"""Support for tests; of the product only the demo may import it.

builders   objects as an API server sends them, and desired load balancers
faults     a provider wrapper that injects failures and latency
ledger     an in-memory ledger that outlives a simulated process
simulation tracker, worker and provider of one process in virtual time, which may crash at any call
contract   the tests that every provider has to pass
worlds     real processes, networks and traffic, which the demo shows and the end-to-end tests use
"""
