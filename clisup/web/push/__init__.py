"""Web Push: messages to browsers whose page is closed, through the push service of each browser."""
