"""imp serve while the model's disk fails or disappears: during the load, and while serving."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from imp_service.models import demo_model_path
from support.machine.command_line import clean_environment
from support.machine.name_spaces import name_space
from support.machine.shim import Shim
from support.servers.server_process import server_process


@pytest.mark.long
def test_y19_a_failing_disk_fails_a_load_but_not_a_loaded_model(tmp_path: Path) -> None:
    model = tmp_path / "m.gguf"
    shutil.copy(demo_model_path(), model)
    counting = Shim(tmp_path)
    run = [sys.executable, "-P", "-m", "imp_service", "run", "-m", str(model), "-n", "1", "hello"]
    subprocess.run(run, env={**clean_environment(tmp_path), **counting.environment}, capture_output=True, check=True)
    # The reads of a load. A server reads the weights again for their digest while it serves.
    n_reads = counting.n_reads
    assert n_reads > 10
    for n_good in (0, 1, n_reads // 2, n_reads - 1):
        failing = Shim(tmp_path)
        failing.fail_reads_after(n_good)
        with server_process(tmp_path, "-m", str(model), environment=failing.environment) as server:
            assert server.wait_for_end() == 74, server.stderr
            assert re.fullmatch(
                r"imp: error: MODEL_IO: m\.gguf: reading at byte \d+: Input/output error\n", server.stderr
            )
    failing = Shim(tmp_path)
    failing.fail_reads_after(n_reads)
    with server_process(tmp_path, "-m", str(model), environment=failing.environment) as server:
        server.wait_until_ready()
        server.run_canary()
        assert server.terminate() == 0


MOUNTED = """
mkdir volume && mount -t tmpfs volume volume && cp "$1" volume/m.gguf && shift && exec "$@"
"""


def test_y19_a_server_goes_on_after_its_volume_is_unmounted(tmp_path: Path) -> None:
    inside = [*name_space("--mount"), "sh", "-c", MOUNTED, "sh", str(demo_model_path())]
    with server_process(tmp_path, "-m", "volume/m.gguf", inside=inside) as server, server.canary() as canary:
        gone = ["nsenter", "-t", str(server.pid), "-m", "umount", "--lazy", str(tmp_path / "volume")]
        if os.geteuid() != 0 or subprocess.run(gone, check=False).returncode != 0:
            pytest.skip("a mount of this kind cannot be taken away here")
        canary.wait_for(2)
