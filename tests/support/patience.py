"""How long a test waits for what must come before it says that it hangs."""

# Seconds, far beyond what anything here takes.
HANGS_AFTER = 60.0
# What a compiler may take for a few files on a machine that does other things too.
BUILD_SECONDS = 900.0
