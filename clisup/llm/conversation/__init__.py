"""Conversations as graphs of nodes, and what a model is to see of them. docs/llm/conversations.md is the guide."""
