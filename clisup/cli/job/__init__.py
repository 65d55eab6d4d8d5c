"""`clisup job`: jobs of the fleet. Loaded only when a command needs it."""
