"""Rules: when a turn is ended, who goes next, what is kept, what is allowed. Pure: times and facts are arguments."""
