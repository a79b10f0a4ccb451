# Compares the stubs of the extension with the extension.
source "$(dirname "$0")/../lib.sh"

python tools/generate_stubs.py --check
