"""How far a partition is done, what a commit writes about it (journal, checkpoint), what a take-over restores."""
