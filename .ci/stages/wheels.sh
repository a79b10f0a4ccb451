# Makes the files of a release, installs and tries them; installs the wheel of the client.
source "$(dirname "$0")/../lib.sh"

without=()
command -v nvcc >/dev/null || without=(--without-cuda)
python tools/release.py "${without[@]}"
IMP_RELEASED=build/release counted wheels tests/house/test_wheel.py
IMP_CLIENT_WHEEL=1 counted client_wheel tests/service/client/test_imp_client.py
