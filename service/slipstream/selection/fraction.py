"""A number in [0, 1) for a name: the same one for the same name, evenly spread over many names."""

from __future__ import annotations

from hashlib import blake2b


def hash_fraction(name: str, salt: str) -> float:
    """The fraction that a name falls on; different salts give fractions independent of each other.

    It is below 1 for every name, so that a comparison with a rate of 1 takes all and with a rate of 0 takes none.
    """
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8, key=salt.encode()).digest()
    return (int.from_bytes(digest) >> 11) / 2**53  # 53 bits are what a float holds exactly
