# Draws many seeds, as a release does.
source "$(dirname "$0")/../lib.sh"

IMP_RELEASE=1 counted seeds tests/determinism/test_same_tokens.py -k many_seeds
