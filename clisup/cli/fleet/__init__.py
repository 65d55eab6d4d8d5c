"""`clisup fleet`, and the views of `--fleet` over all boxes. Loaded only when a command needs them."""
