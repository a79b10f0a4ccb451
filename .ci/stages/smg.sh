# Runs the tests behind the gateway SMG.
source "$(dirname "$0")/../lib.sh"

if [ "$IMP_CI_TIER" = part ]; then
  apart smg "smg>=1.13,<2" -- tests/service/gateways/test_behind_smg_grpc.py
else
  apart smg "smg>=1.13,<2" -- tests/service/gateways --all
fi
