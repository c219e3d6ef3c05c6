"""What tests need and no product code may import: builders, faults, a ledger that survives, and virtual time.

builders   wire objects and desired load balancers in the fewest words
faults     a provider that fails as real ones do: before, after, item by item, late
ledger     the promise of a durable ledger, kept in memory across the life of a process
engine     tracker, worker and provider of one process, in virtual time, that may be killed at any call
"""
