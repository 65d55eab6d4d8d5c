"""Commands about backends, recordings and the rest."""
