# Builds the container image, starts it like a pod, and asks it something.
source "$(dirname "$0")/../lib.sh"

python tests/image
