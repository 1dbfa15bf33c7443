"""The home folder and the ledger: which seeds ran and what came of them."""
