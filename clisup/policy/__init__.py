"""Rules: watchdog, fair queue, retention, approvals and others. Pure: times and facts are arguments."""
