"""systemd: notifications, units, the service manager, and the journal."""
