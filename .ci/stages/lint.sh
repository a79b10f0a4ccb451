# Checks lint, format and types. It needs no build.
source "$(dirname "$0")/../lib.sh"

ruff check .
ruff format --check .
git ls-files {csrc,tests/native}/'*.'{h,cpp,inl,cu,cuh} | xargs clang-format --dry-run --Werror
mypy
