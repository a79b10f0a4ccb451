"""Chat templates: conversations to prompts, in a sandbox with limits of time and size."""
