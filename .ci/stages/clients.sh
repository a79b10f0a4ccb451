# Runs clients of OpenAI's API. They need another release of openai than the one to which the tests are pinned; if the
# pinned one were visible, pip could choose older clients.
source "$(dirname "$0")/../lib.sh"

mapfile -t tools < <(extra test | grep -v '^openai==')
mapfile -t clients < <(extra clients)
shared=no apart clients "${tools[@]}" "${clients[@]}" -- tests/service/clients_of_openai --all "${one_loop[@]}"
