"""Commands about sessions and their turns."""
