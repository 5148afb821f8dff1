"""Encryption of what the store holds: AES-256-GCM of the package `cryptography`, under keys that the operator gives.

A sealed value is the byte 0xC1, the key's fingerprint (4 bytes), a salt (16), a nonce (12), the ciphertext and its tag
(16). No body that is not sealed begins with 0xC1: zlib's begin with 0x78, and MessagePack never uses it.

GCM with random nonces is sound for 2^32 values under one key (NIST SP 800-38D, section 8.3), which a busy sidecar
writes in weeks. So each process seals under a key of its own, derived from the operator's and a random salt by HKDF
(RFC 5869), and takes another one after so many. Fernet, the library's ready-made recipe, takes ten times as long and a
third more room; AES-GCM-SIV, which takes any number of nonces, takes fourteen times as long for a long body.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from slipstream.errors import SlipstreamError

MARK = b"\xc1"
"""First byte of a sealed value."""

_FINGERPRINT, _SALT, _NONCE = 4, 16, 12
_HEAD = len(MARK) + _FINGERPRINT + _SALT + _NONCE
_MOST = 2**32


class Sealed(SlipstreamError):
    """A value that none of the keys opens, or that was changed."""


def fingerprint(key: bytes) -> str:
    """A name of the key that tells nothing about it: 8 hexadecimal digits."""
    return hashlib.blake2b(key, digest_size=_FINGERPRINT, person=b"slipstream").hexdigest()


class Cipher:
    """Seals with the first key and opens with any of them.

    Args:
        keys: of 32 bytes each, at least one.
    """

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._keys = {bytes.fromhex(fingerprint(key)): key for key in keys}
        self.fingerprints = tuple(name.hex() for name in self._keys)
        self._derived: dict[tuple[bytes, bytes], AESGCM] = {}
        self._renew()

    def _renew(self) -> None:
        name, salt = next(iter(self._keys)), os.urandom(_SALT)
        self._left = _MOST
        self._head = MARK + name + salt
        self._sealing = self._derive(name, salt)

    def seal(self, clear: bytes) -> bytes:
        """The value, sealed: 49 bytes longer."""
        if not self._left:
            self._renew()
        self._left -= 1
        nonce = os.urandom(_NONCE)
        return b"%b%b%b" % (self._head, nonce, self._sealing.encrypt(nonce, clear, None))

    def open(self, value: bytes) -> bytes:
        """The value as it was; one that was never sealed as it is.

        Raises:
            Sealed: none of the keys opens it.
        """
        if value[:1] != MARK:
            return value
        name, salt, nonce = value[1:5], value[5:21], value[21:_HEAD]
        if name not in self._keys:
            raise Sealed(f"a value of the store is sealed with the key {name.hex()}, which store.encryption_key lacks")
        try:
            return self._derive(name, salt).decrypt(nonce, value[_HEAD:], None)
        except (InvalidTag, ValueError) as error:
            raise Sealed("a value of the store was changed after it was sealed") from error

    def _derive(self, name: bytes, salt: bytes) -> AESGCM:
        derived = self._derived.get((name, salt))
        if derived is None:
            kdf = HKDF(algorithm=SHA256(), length=32, salt=salt, info=b"slipstream store")
            derived = self._derived[name, salt] = AESGCM(kdf.derive(self._keys[name]))
        return derived
