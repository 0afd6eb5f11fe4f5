"""The comparisons anyone can re-run."""
