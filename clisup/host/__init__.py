"""Effects on the host: files, locks, clocks, logging, and the folders process, sockets and systemd."""
