"""Configuration: model, table of keys, origins, changes, schema, and the spec of a session. Pure."""
