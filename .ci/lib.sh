# What the scripts of the stages share. Each sources it first.
# shellcheck shell=bash
set -eEuo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
: "${IMP_CI_TIER:=full}" "${IMP_CI_REPORTS:=$PWD/build/ci/reports}" "${IMP_CI_FAILED_COMMAND:=/dev/null}"
export IMP_CI_TIER IMP_CI_REPORTS IMP_CI_FAILED_COMMAND
# The report of a failed stage names the command that failed first.
trap '[ -s "$IMP_CI_FAILED_COMMAND" ] || printf "%s\n" "$BASH_COMMAND" >"$IMP_CI_FAILED_COMMAND"' ERR
venv="${IMP_CI_VENV:-build/ci-venv}"
# Without this, every process of a test would compile again what pip has not compiled.
unset PYTHONDONTWRITEBYTECODE
# All build folders of this tree share one ccache.
export CCACHE_BASEDIR="$PWD" CCACHE_NOHASHDIR=1
# A release repeats random tests more often, and draws new examples.
[ "$IMP_CI_TIER" != release ] || export IMP_RELEASE=1
# Registries sometimes answer late.
export PIP_RETRIES=10 PIP_DISABLE_PIP_VERSION_CHECK=1
if [ -e "$venv/bin/activate" ]; then
  # shellcheck disable=SC1091
  source "$venv/bin/activate"
fi

# Prints a list of pyproject.toml, named by its keys.
requirements() {
  python3 -c '
import functools, sys, tomllib
print(*functools.reduce(dict.get, sys.argv[1:], tomllib.load(open("pyproject.toml", "rb"))), sep="\n")' "$@"
}

# Runs pytest: NAME of the record, paths, then options of pytest.
counted() { python tools/ci/tests_run.py "$@"; }

# Prints the requirements of an extra of pyproject.toml.
extra() { requirements project optional-dependencies "$1"; }

# Prints the wheel of imp that the separate environments install: that of the stage `build` in the gate; later a build
# without CUDA. The build folder is that of `build`, so few files are compiled.
testing_wheel() {
  if ! ls build/ci/wheel/imp_service-*.whl 2>/dev/null; then
    local cuda=off
    [ "$IMP_CI_TIER" != part ] || cuda="$(cat build/ci/cuda)"
    IMP_TESTING=ON IMP_CUDA="$cuda" pip wheel --quiet --no-build-isolation --no-deps --wheel-dir build/ci/wheel . >&2
    ls build/ci/wheel/imp_service-*.whl
  fi
}

packages_of() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

# Runs tests in a separate environment: NAME, arguments of pip install, `--`, arguments of pytest. The environment also
# has the packages of the first one, so that pip installs only what is missing; `shared=no` leaves them out.
apart() {
  local name="$1" wheel packages=()
  shift
  while [ "$1" != -- ]; do packages+=("$1"); shift; done
  wheel="$(testing_wheel)"
  # --clear, because pip does not replace an installed wheel with another of the same version.
  python3 -m venv --clear "build/ci-$name"
  if [ "${shared:-yes}" = yes ]; then
    packages_of "$venv" >"$(packages_of "build/ci-$name")/first.pth"
  fi
  "build/ci-$name/bin/pip" install --quiet --no-compile --no-deps --force-reinstall "$wheel"
  "build/ci-$name/bin/pip" install --quiet --no-compile "$wheel" "${packages[@]}"
  (PATH="$PWD/build/ci-$name/bin:$PATH" counted "$name" "${@:2}")
}

# Options of pytest-asyncio for the clients of OpenAI's API.
# shellcheck disable=SC2034
one_loop=(-o asyncio_mode=auto -o asyncio_default_test_loop_scope=session -o asyncio_default_fixture_loop_scope=session)

# The source of llama.cpp in the source distribution of its Python package, which has its converter and its tests.
llama_cpp=build/ci-llama-cpp
if [ -e "$llama_cpp/source" ]; then
  export IMP_LLAMA_CPP_SOURCE="$PWD/$llama_cpp/source/vendor/llama.cpp"
fi
