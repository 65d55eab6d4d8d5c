"""Chats over sessions of the daemon: the opening of a session, the reading of its turns, and its end."""
