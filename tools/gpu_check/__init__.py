"""One run on a GPU machine: builds, checks, measures, compares and writes the ledger."""
