"""Clients: connections, handlers of the method table, subscriptions, and fair shares."""
