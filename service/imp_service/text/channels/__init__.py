"""Output as channels: content, reasoning and tool calls, split as a model's dialect writes them."""
