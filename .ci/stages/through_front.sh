# Runs llama-server's suite and the clients of OpenAI's API once more, through a front, in the environments of their
# stages.
source "$(dirname "$0")/../lib.sh"

export IMP_THROUGH_FRONT=1
(
  PATH="$PWD/build/ci-llama_suite/bin:$PATH"
  IMP_LLAMA_CPP_SUITE=1 counted through_front_llama tests/service/llama_cpp_suite --all
)
(
  PATH="$PWD/build/ci-clients/bin:$PATH"
  counted through_front_clients tests/service/clients_of_openai --all "${one_loop[@]}"
)
