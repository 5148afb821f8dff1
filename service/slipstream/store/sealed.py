"""Columns that are encrypted where the store has a key: whatever can quote a user.

The key is the engine's, told once by `seal_with`; without one the columns are plain. What was written before there was
a key is read as it is, and sealed when it is written again. `bulk` passes rows by SQLAlchemy, and has them sealed here.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import JSON, Dialect, LargeBinary, Text
from sqlalchemy.types import TypeDecorator

from slipstream.store.cipher import MARK, Cipher, Sealed

_ciphers: WeakKeyDictionary[Dialect, Cipher] = WeakKeyDictionary()

_PREFIX = "sealed:"
"""Prefix of a sealed text; the value in base64 follows."""


def seal_with(dialect: Dialect, cipher: Cipher) -> None:
    """Encrypt the sealed columns of this engine; before it is used."""
    _ciphers[dialect] = cipher


def cipher_of(dialect: Dialect) -> Cipher | None:
    """Return the cipher of this engine's sealed columns, if there is one."""
    return _ciphers.get(dialect)


class SealedType(TypeDecorator[Any]):
    """A type whose values go through the engine's cipher."""

    cache_ok = True

    def sealed(self, cipher: Cipher, value: Any) -> Any:
        """The value as the plain type takes it."""
        raise NotImplementedError

    def opened(self, cipher: Cipher, value: Any) -> Any:
        """The value that was sealed; one that was not as it is."""
        raise NotImplementedError

    def driver_value(self, cipher: Cipher, value: Any) -> Any:
        """A value as the driver takes it, sealed."""
        return None if value is None else self.sealed(cipher, value)

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], Any] | None:
        plain = self.impl_instance.bind_processor(dialect)
        cipher = cipher_of(dialect)
        if cipher is None:
            return plain

        def process(value: Any) -> Any:
            value = value if value is None else self.sealed(cipher, value)
            return value if plain is None else plain(value)

        return process

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any] | None:
        plain = self.impl_instance.result_processor(dialect, coltype)
        cipher = cipher_of(dialect)
        if cipher is None:
            return plain

        def process(value: Any) -> Any:
            value = value if plain is None else plain(value)
            return value if value is None else self.opened(cipher, value)

        return process


class SealedBytes(SealedType):
    """Bytes that are packed: see `bodies` and `capture.redacted`."""

    impl = LargeBinary
    cache_ok = True

    def sealed(self, cipher: Cipher, value: bytes) -> bytes:
        return cipher.seal(value)

    def opened(self, cipher: Cipher, value: bytes) -> bytes:
        return cipher.open(value)


class SealedText(SealedType):
    impl = Text
    cache_ok = True

    def sealed(self, cipher: Cipher, value: str) -> str:
        return _as_text(cipher, value.encode("utf-8", "surrogatepass"))

    def opened(self, cipher: Cipher, value: str) -> str:
        clear = _from_text(cipher, value)
        return value if clear is None else clear.decode("utf-8", "surrogatepass")


class SealedJson(SealedType):
    """A JSON object; sealed, it is a JSON text. The empty one says nothing, and stays."""

    impl = JSON
    cache_ok = True

    def sealed(self, cipher: Cipher, value: dict[str, Any]) -> Any:
        return _as_text(cipher, json.dumps(value).encode()) if value else value

    def opened(self, cipher: Cipher, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return json.loads(cipher.open(base64.b64decode(value.removeprefix(_PREFIX))))

    def driver_value(self, cipher: Cipher, value: str | None) -> str | None:
        return value if value in (None, "{}") else json.dumps(_as_text(cipher, str(value).encode()))


def _as_text(cipher: Cipher, clear: bytes) -> str:
    return _PREFIX + base64.b64encode(cipher.seal(clear)).decode()


def _from_text(cipher: Cipher, value: str) -> bytes | None:
    """Return the sealed value; None for a text that is not sealed, however it begins: anybody may write one."""
    try:
        raw = base64.b64decode(value.removeprefix(_PREFIX), validate=True) if value.startswith(_PREFIX) else b""
        return cipher.open(raw) if raw.startswith(MARK) else None
    except (binascii.Error, Sealed):
        return None
