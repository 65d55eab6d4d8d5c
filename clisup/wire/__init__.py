"""The wire protocol without I/O: framing and JSON-RPC rules, the models of params and results, and THE method table."""
