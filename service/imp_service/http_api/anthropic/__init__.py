"""Anthropic's Messages API: its request fields, its replies, and its event streams."""
