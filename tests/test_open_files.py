"""A sidecar that was started with few open files allowed takes as many as it may have."""

from __future__ import annotations

import resource
import signal
from pathlib import Path

from sidecar_process import SidecarProcess


async def test_each_process_may_open_as_many_files_as_the_system_lets_it(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    sidecar = SidecarProcess(tmp_path, "http://127.0.0.1:9", "http://127.0.0.1:9")
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, soft), hard))
    try:
        await sidecar.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    children = sidecar.children()
    assert set(children) == {"proxy-0", "training"}
    for pid in children.values():
        assert resource.prlimit(pid, resource.RLIMIT_NOFILE) == (hard, hard)
    await sidecar.end(signal.SIGTERM)
