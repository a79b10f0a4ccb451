# Models of the Python package index: the default speculation beside none, embeddings in place of tokens, vectors and
# decisions, also beside transformers, sentence-transformers and llama.cpp.
source "$(dirname "$0")/../lib.sh"

IMP_REAL_WEIGHTS=1 counted real_weights tests/determinism/test_real_weights.py tests/determinism/test_real_media.py \
  tests/determinism/test_real_vectors.py tests/determinism/test_real_embeddings.py \
  tests/determinism/test_real_decisions.py \
  tests/parity/test_decisions.py tests/parity/test_real_neighbours.py tests/parity/test_real_vectors_llama_cpp.py
