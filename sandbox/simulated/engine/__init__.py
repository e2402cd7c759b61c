"""The simulated engine itself: one process that serves HTTP, a scheduler for each rank, a detokenizer."""
