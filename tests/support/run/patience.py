"""Time limits of tests that wait for an event."""

# Seconds until a wait counts as a hang. A limit that only detects a hang costs nothing while nothing hangs, so it is
# long enough for a machine whose processors other programs use.
HANGS_AFTER = 300.0
# Seconds that compiling or installing a few packages may take on a busy machine.
BUILD_SECONDS = 900.0
