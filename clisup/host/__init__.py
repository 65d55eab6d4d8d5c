"""Effects, one a file: files and locks, the journal on disk, keepers, peers, executables, the process's own hardening."""
