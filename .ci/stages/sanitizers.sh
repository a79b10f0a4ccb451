# Runs parts of the core under sanitizers.
source "$(dirname "$0")/../lib.sh"

if [ "$IMP_CI_TIER" = part ]; then
  tests/sanitize/run build/sanitize smoke
else
  tests/sanitize/run build/sanitize
fi
