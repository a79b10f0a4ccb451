# Runs the tests as README says.
source "$(dirname "$0")/../lib.sh"

counted suite
