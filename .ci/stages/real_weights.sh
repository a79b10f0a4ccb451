# A model of the Python package index: the default speculation beside none, and embeddings in place of tokens.
source "$(dirname "$0")/../lib.sh"

IMP_REAL_WEIGHTS=1 counted real_weights tests/determinism/test_real_weights.py tests/determinism/test_real_media.py
