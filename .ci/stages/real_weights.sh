# Compares the default speculation with none on a model of the Python package index.
source "$(dirname "$0")/../lib.sh"

IMP_REAL_WEIGHTS=1 counted real_weights tests/determinism/test_real_weights.py
