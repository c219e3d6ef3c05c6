"""The command line: many seeds on all cores, one seed, or one story; see docs/invariants.md."""

from tests.simulate.run import main

if __name__ == "__main__":
    main()
