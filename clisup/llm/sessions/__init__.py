"""Chats over sessions of the daemon: how a session is opened, how its turns are read, and how it ends."""
