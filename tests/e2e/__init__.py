"""End-to-end kit: a loopback Messages API, its scenarios, and the recorder of the real claude CLI."""
