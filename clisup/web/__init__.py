"""`clisup web`: pages over HTTP that show sessions, answer approvals and send prompts. A client of the daemon on trio."""
