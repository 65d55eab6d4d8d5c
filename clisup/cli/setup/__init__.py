"""`clisup setup`: from an installed CLI to a first turn, step by step."""
