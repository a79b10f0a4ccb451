"""Splits a model's output into channels: content, reasoning and tool calls. A dialect describes their markup."""
