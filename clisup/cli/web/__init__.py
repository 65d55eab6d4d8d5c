"""`clisup web`: options, login links and tokens. `clisup.web` has the pages."""
