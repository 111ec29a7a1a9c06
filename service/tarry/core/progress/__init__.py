"""How far a partition is done, what a commit writes about that (journal, checkpoint), what a take-over restores."""
