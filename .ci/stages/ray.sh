# Runs the tests behind Ray Serve, with a build without CUDA.
source "$(dirname "$0")/../lib.sh"

mapfile -t ray < <(extra ray)
if [ "$IMP_CI_TIER" = part ]; then
  apart ray "${ray[@]}" -- tests/service/ray_app/test_ray_serve.py
else
  apart ray "${ray[@]}" -- tests/service/ray_app tests/service/cli/test_kernels.py --all
fi
