# Runs the kernels for ARM on an emulated processor.
source "$(dirname "$0")/../lib.sh"

if [ "$IMP_CI_TIER" = part ]; then
  tests/arm/run build/arm smoke
else
  tests/arm/run build/arm
fi
