"""State on disk: session directories, journals, spools, cursors, transcripts, and readers that need no daemon."""
