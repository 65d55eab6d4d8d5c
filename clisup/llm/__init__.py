"""The model layer: typed calls, tools, conversations and workflows, for programs that want a model rather than a process.

It speaks to the daemon as any client does and never touches a CLI. docs/llm/README.md is the guide.
"""
