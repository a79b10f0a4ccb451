# Runs the cases that the suite leaves out. A release repeats more.
source "$(dirname "$0")/../lib.sh"

if [ "$IMP_CI_TIER" = release ]; then
  export IMP_RELEASE=1
fi
counted rest --rest
