"""`clisup export`: a session as a document. All files but `command.py` are pure: events in, text out."""
