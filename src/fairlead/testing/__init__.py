"""Support for tests. Of all product code only the demo may import it.

builders   wire objects and desired load balancers in the fewest words
faults     a provider that fails as real ones do: before, after, item by item, late
ledger     the promise of a durable ledger, kept in memory across the life of a process
simulation tracker, worker and provider of one process, in virtual time, that may be killed at any call
contract   the promises of a provider, as tests
worlds     real processes, networks and traffic, which the demo shows and the end-to-end tests use
"""
