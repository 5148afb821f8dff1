"""Namespaces of Linux, so that a schedule can fill its own disk and break its own name resolution.

A schedule runs in a process of its own, by `unshare`: with its own mounts, loopback interface, shared memory and
processes, all of which end with it. Where that is not allowed it runs without, and the faults that need it are left
out, and counted as such.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import struct
import subprocess
from functools import cache
from pathlib import Path

HOST = "production.chaos"
"""The name that production is configured by."""

_INSIDE = "CHAOS_SANDBOX"
_UNSHARE = ("unshare", "--mount", "--ipc", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")
_STORE_SIZE = "96m"
_SET_FLAGS, _UP = 0x8914, 0x1
"""SIOCSIFFLAGS and IFF_UP of netdevice(7)."""


@cache
def entrance() -> tuple[str, ...]:
    """What a command is put behind to run in a sandbox; nothing where there is none to be had."""
    as_root = () if os.geteuid() == 0 else ("--map-root-user",)
    try:
        subprocess.run([*_UNSHARE, *as_root, "true"], check=True, capture_output=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return ()
    return ("env", f"{_INSIDE}=1", *_UNSHARE, *as_root)


def inside() -> bool:
    return _INSIDE in os.environ


class Sandbox:
    """The mounts of this process.

    Attributes:
        turn: held by the fault that has the store's disk: one that takes no writes can neither be filled nor cleared.
    """

    def __init__(self, folder: Path) -> None:
        self.turn = asyncio.Lock()
        self.store = folder / "store"
        self.store.mkdir()
        self._hosts = folder / "hosts"
        self._hosts.write_text(f"127.0.0.1 localhost {HOST}\n")
        resolver = folder / "resolv.conf"
        resolver.write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")  # where nobody listens
        _loopback_up()
        _mount("--types", "tmpfs", "--options", "size=64m,mode=1777", "none", "/dev/shm")
        _mount("--types", "tmpfs", "--options", f"size={_STORE_SIZE}", "none", str(self.store))
        _mount("--bind", str(self._hosts), "/etc/hosts")
        _mount("--bind", str(resolver), "/etc/resolv.conf")

    def resolve(self, known: bool) -> None:
        """Whether production's name has an address."""
        with self._hosts.open("r+") as file:  # in its place: the mount is of this very file
            file.truncate()
            file.write(f"127.0.0.1 localhost {HOST if known else ''}\n")

    def fill(self) -> None:
        """Not a byte more fits beside the store."""
        with (self.store / "filler").open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 16))
            except OSError:
                return

    def clear(self) -> None:
        (self.store / "filler").unlink(missing_ok=True)

    def read_only(self, yes: bool) -> bool:
        """Have the store's file system take no writes; returns whether that worked: nobody may have a file open."""
        try:
            _mount("--options", f"remount,{'ro' if yes else 'rw'}", str(self.store))
        except subprocess.CalledProcessError:
            return False
        return True


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True)


def _loopback_up() -> None:
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sh", b"lo", _UP))
