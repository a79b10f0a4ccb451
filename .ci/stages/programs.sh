# Installs the programs that tests start: Debian's packages, and npm's in the folders that use them.
source "$(dirname "$0")/../lib.sh"

# Programs, each with its Debian package.
programs=(ccache=ccache make=make pkg-config=pkg-config protoc=protobuf-compiler grpc_cpp_plugin=protobuf-compiler-grpc
  node=nodejs npm=npm kubectl=kubernetes-client strace=strace taskset=util-linux prlimit=util-linux nm=binutils
  curl=curl xxd=xxd jq=jq zsh=zsh fish=fish aarch64-linux-gnu-g++=g++-aarch64-linux-gnu
  qemu-aarch64=qemu-user g++=g++ chromium=chromium systemd-analyze=systemd)
# The image of the container is built and started in a full run alone.
[ "$IMP_CI_TIER" = gate ] || programs+=(buildah=buildah runc=runc mmdebstrap=mmdebstrap)
packages=()
for pair in "${programs[@]}"; do
  command -v "${pair%%=*}" >/dev/null || packages+=("${pair#*=}")
done
# The examples name the packages that they build with.
for package in $(sed -n 's/^# apt install //p' examples/*/Makefile); do
  dpkg -s "$package" >/dev/null 2>&1 || packages+=("$package")
done
python3 -c 'import ensurepip' 2>/dev/null || packages+=(python3-venv)
if [ "${#packages[@]}" != 0 ]; then
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "these packages of Debian are missing: ${packages[*]}"
    exit 1
  fi
  apt-get -o Acquire::Retries=5 update -qq
  DEBIAN_FRONTEND=noninteractive apt-get -o Acquire::Retries=5 install -y -qq "${packages[@]}" >/dev/null
fi
for folder in examples/{node,openai,anthropic,vercel} tests/service/http_api/playground tests/house/workflows; do
  npm install --prefix "$folder" --no-audit --no-fund --silent --fetch-retries 5
done
