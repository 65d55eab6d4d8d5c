"""Lines of a CLI's output: cut from bytes, measured, and shortened where they are long. Pure."""
