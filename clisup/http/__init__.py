"""Address rules, sockets and the link to the daemon of clisup's HTTP servers: `clisup web` and `clisup gateway`."""
