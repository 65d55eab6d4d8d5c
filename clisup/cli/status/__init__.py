"""`clisup status`. `page` and `columns` import almost nothing: people and shell prompts run the command all day."""
