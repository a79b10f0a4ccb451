# Runs the committed stubs under the oldest and the newest runtime.
source "$(dirname "$0")/../lib.sh"

IMP_STUB_RUNTIMES=1 counted stub_runtimes tests/house/test_stub_runtimes.py
