# Reads the manifests with KServe's classes.
source "$(dirname "$0")/../lib.sh"

apart kserve "kserve>=0.20,<1" -- tests/service/deploy/test_kserve.py --all
