"""The real Qwen Code in front of a fake of its API."""
