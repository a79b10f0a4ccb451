"""Confines a process like a pod of conf/kubernetes: another user, no capabilities, a read-only disk, no network."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from support.machine.command_line import FOUND_IN

USER = 65532

# Root becomes the other user for good. Anyone else takes that user's id in a user namespace, and has no rights anyway.
_AS_ROOT = (
    ["unshare", "--mount", "--net"],
    f"setpriv --reuid {USER} --regid {USER} --clear-groups",
)
_AS_ANYBODY = (
    ["unshare", "--user", "--map-root-user", "--mount", "--net"],
    f"unshare --user --map-user={USER} --map-group={USER} setpriv",
)

# In its own namespaces: all mounts but one folder are read-only; then a user without rights, an empty environment.
# No interface is up in the new network, so that nothing can go out.
_SCRIPT = """
set -e
# What hides a path from other users, as /root does, is covered, and the path alone is put back.
reach() {
  hidden= above="$1"
  while [ "$above" != / ]; do
    above="$(dirname "$above")"
    [ -z "$(find "$above" -maxdepth 0 ! -perm -o=x)" ] || hidden="$above"
  done
  [ -n "$hidden" ] || return 0
  mount --bind "$1" /mnt
  mount -t tmpfs -o mode=755 cover "$hidden"
  mkdir -p "$1"
  mount --move /mnt "$1"
}
mount --make-rprivate /
folder="$1"; reach "$2"; become="$3"; path="$4"; shift 4
mount --bind "$folder" "$folder"
[ "$(id -u)" != 0 ] || chown 65532:65532 "$folder" 2>/dev/null || true
reach "$folder"
while read -r _ _ _ _ target _; do
  [ "$target" = "$folder" ] || mount -o remount,bind,ro "$target" 2>/dev/null || true
done < /proc/self/mountinfo
cd "$folder"
exec $become --no-new-privs --inh-caps=-all --bounding-set=-all env -i PATH=/nowhere PYTHONPATH="$path" "$@"
"""


def confined(writable: Path) -> Sequence[str]:
    """Returns a command prefix that confines the command; skips the test if this machine allows no namespaces."""
    enter, become = _AS_ROOT if os.geteuid() == 0 else _AS_ANYBODY
    given = [str(writable), os.path.realpath(sys.base_prefix), become, str(FOUND_IN)]
    words = [*enter, "bash", "-c", _SCRIPT, "bash", *given]
    tried = subprocess.run([*words, sys.executable, "-c", ""], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"no name spaces here: {tried.stderr.strip()}")
    return words
