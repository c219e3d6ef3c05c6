"""The ledger: what was, or may have been, done at a provider. See ``model.contract.Ledger`` for the promise."""
