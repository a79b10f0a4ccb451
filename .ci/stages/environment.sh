# Makes the virtual environment, with all packages that imp, its build, its tests and its lint need, but not imp.
source "$(dirname "$0")/../lib.sh"

python3 -m venv "$venv"
# shellcheck disable=SC1091
source "$venv/bin/activate"
constraints=(--constraint .ci/constraints.txt)
pip install --quiet --upgrade "${constraints[@]}" pip
mapfile -t packages < <(
  requirements build-system requires
  requirements project dependencies
  extra test
  extra lint
)
pip install --quiet --no-compile "${constraints[@]}" "${packages[@]}"
