"""Time limits of tests that wait for an event."""

# Seconds until a wait counts as a hang: far longer than anything here takes.
HANGS_AFTER = 60.0
# Seconds that compiling a few files may take on a busy machine.
BUILD_SECONDS = 900.0
