# Breaks the service's code in small ways, and counts what the tests of a plain run detect.
source "$(dirname "$0")/../lib.sh"

mapfile -t packages < <(extra mutants)
pip install --quiet --no-compile "${packages[@]}"
rm -rf build/mutants
python tests/mutants
