"""Workers of API backends: child processes that ask an HTTP API and speak claude's stream-json."""
