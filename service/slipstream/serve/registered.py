"""The file that says as what the training side is registered in its store, for the process that takes its place."""

from __future__ import annotations

import mmap
import os
import zlib
from pathlib import Path

from slipstream.cluster.registration import SIZE, Registration

_NAME = "registered"


def registration_in(folder: Path, store_url: str) -> Registration:
    """The registration in the folder of the Unix sockets, for one store.

    Raises:
        OSError: the file cannot be made.
    """
    file = os.open(folder / _NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(file, 0, SIZE)
        return Registration(memoryview(mmap.mmap(file, SIZE)), zlib.crc32(store_url.encode()))
    finally:
        os.close(file)
