"""A turn on its way from the prompt to the exit code: approvals, interrupts, and the answer."""
