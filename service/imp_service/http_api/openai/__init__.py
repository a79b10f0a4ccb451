"""OpenAI's API: its request fields, its replies, and its event streams."""
