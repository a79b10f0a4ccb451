"""How long a test waits for what must come before it says that it hangs."""

# Seconds, far beyond what anything here takes.
HANGS_AFTER = 60.0
