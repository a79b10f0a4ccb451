# Runs the cases that the suite leaves out.
source "$(dirname "$0")/../lib.sh"

counted rest --rest
