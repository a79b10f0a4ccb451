# Runs the tests of llama-server against imp.
source "$(dirname "$0")/../lib.sh"

IMP_LLAMA_CPP_SUITE=1 apart llama_suite requests filelock wget -- tests/service/llama_cpp_suite --all
