"""Limits on what a TLS connection of uvloop buffers, beside the kernel's buffers and TCP's."""

from __future__ import annotations

import asyncio
from typing import Any


def _is_tls(transport: asyncio.BaseTransport) -> bool:
    """Return whether a connection is encrypted."""
    return transport.get_extra_info("ssl_object") is not None


def read_nothing_while_paused(transport: asyncio.Transport) -> None:
    """Let `pause_reading` of a TLS connection pause its TCP connection too, as soon as bytes come that wait.

    By default uvloop only stops decrypting: it reads 256 KiB on, and if the connection ends behind them, it discards
    them. With this, the end is seen only after everything before it was delivered.
    """
    if _is_tls(transport):
        tls: Any = transport  # the types do not know this method, which all TLS transports have
        tls.set_read_buffer_limits(high=1, low=0)
