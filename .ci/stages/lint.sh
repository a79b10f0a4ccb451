# Checks lint, format, types and the generated client. It needs no build.
source "$(dirname "$0")/../lib.sh"

ruff check .
ruff format --check .
git ls-files {csrc,tests/native}/'*.'{h,cpp,inl,cu,cuh} | xargs clang-format --dry-run --Werror
mypy
python tools/generate_sync.py --check
