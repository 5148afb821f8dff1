"""Limits on what a TLS connection of uvloop buffers, beside the kernel's buffers and TCP's."""

from __future__ import annotations

import asyncio
from typing import Any

_UNSENT = 64 * 1024
"""Bytes that may wait, as in a connection without TLS; uvloop's default for TLS is 512 KiB."""


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


def limit_unsent(transport: asyncio.Transport) -> None:
    """Let a TLS connection ask its writer to pause once 64 KiB wait, beside 64 KiB that wait encrypted."""
    if _is_tls(transport):
        transport.set_write_buffer_limits(high=_UNSENT)
