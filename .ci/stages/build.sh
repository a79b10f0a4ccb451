# Runs the install command of README's tests, with the tools of this environment: their paths stay the same, so the next
# build in this tree compiles few files.
source "$(dirname "$0")/../lib.sh"

# The compiler for GPUs takes a quarter of the time of a build, so the gate calls it only for a change of its sources.
export IMP_CUDA="${IMP_CUDA:-auto}"
if [ "$IMP_CI_TIER" = gate ] && [ -e build/ci/changed.txt ] \
  && ! grep -qE '^csrc/backend/(cuda/|[a-z_]+\.)' build/ci/changed.txt; then
  IMP_CUDA=off
fi
echo "$IMP_CUDA" >build/ci/cuda
install="$(sed -n 's/^\(IMP_TESTING=ON pip install .*\) && pytest$/\1/p' README.md)"
[ -n "$install" ] || { echo "README.md has no test command"; exit 1; }
echo "+ $install"
eval "${install/pip install/pip install --quiet --no-build-isolation}"
