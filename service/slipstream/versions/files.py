"""Hard links and copies of weights, and the lock of a folder that several processes change."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import functools
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, ParamSpec, TypeVar

from slipstream.errors import SlipstreamError

_P = ParamSpec("_P")
_T = TypeVar("_T")

_LOOK_AGAIN = 0.05
"""Seconds until a folder that another process holds is tried again."""


class NotPlaced(SlipstreamError):
    """Weights could not be linked or copied; the message says why, and nothing was changed."""


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder, which is made where it is missing, against other processes; the lock ends with this one."""
    with _opened(folder) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.asynccontextmanager
async def held(folder: Path) -> AsyncIterator[None]:
    """Hold a folder as `locked` does, over steps of a coroutine.

    It is tried again and again, for a thread that waits for a lock cannot be cancelled. Who waits for it must not be in
    a transaction of the store: its holder may be waiting for that.
    """
    with await to_its_end(_opened, folder) as file:
        while not await to_its_end(_taken, file):  # noqa: ASYNC110 - other processes set no event
            await asyncio.sleep(_LOOK_AGAIN)
        yield


async def to_its_end(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Run a function in a thread. A caller that is cancelled waits for its end, because the thread goes on: the folder
    that it changes would not be held any more."""
    running = asyncio.get_running_loop().run_in_executor(None, functools.partial(function, *args, **kwargs))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise


def place(source: Path, target: Path, names: Iterable[str], *, copy: bool) -> None:
    """Have the files of these names below `source` below `target` too; those that are there already stay.

    Args:
        copy: copy them; otherwise they are hard links, which take no space while the source is there.

    Raises:
        NotPlaced: the file system cannot do it, or a file is gone.
    """
    for name in names:
        there = target / name
        there.parent.mkdir(parents=True, exist_ok=True)
        try:
            if copy:
                shutil.copy2(source / name, there)
            else:
                os.link(source / name, there)
        except FileExistsError:
            continue
        except FileNotFoundError as error:
            raise NotPlaced(f"{source / name}: it was deleted meanwhile") from error
        except OSError as error:
            raise NotPlaced(f"{there}: {_reason(error)}") from error


def delete(folder: Path) -> None:
    """Delete a folder in a way that no reader sees a part of it; nothing happens where it is missing."""
    doomed = folder.with_name(f".{folder.name}.deleted")
    shutil.rmtree(doomed, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        folder.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def sweep(folder: Path) -> None:
    """Delete what a process that died has left in a folder that is held."""
    for left in (*folder.glob(".*.partial"), *folder.glob(".*.deleted")):
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)


def _opened(folder: Path) -> IO[str]:
    folder.mkdir(parents=True, exist_ok=True)
    return (folder / ".slipstream.lock").open("a")


def _taken(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _reason(error: OSError) -> str:
    copy = "serving.copy_files: true copies instead"
    if error.errno == errno.EXDEV:
        return f"expected the file system of the weights, found another, which cannot be hard-linked to; {copy}"
    if error.errno in (errno.EPERM, errno.ENOTSUP, errno.EMLINK):
        return (
            f"a hard link is refused ({error.strerror}): the file system has none, or the weights belong to another "
            f"user (fs.protected_hardlinks); {copy}"
        )
    return str(error)
