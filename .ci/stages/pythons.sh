# Builds imp for the other Pythons, and runs what depends on the interpreter.
source "$(dirname "$0")/../lib.sh"

IMP_PYTHONS=1 counted pythons tests/house/test_pythons.py
