"""The keys as the training side knows them. The workers have keyrings of their own."""

from __future__ import annotations

from slipstream.access.keyring import Key, Keyring
from slipstream.access.settings import Access
from slipstream.errors import ConfigError


class KnownKeys:
    """The keys that are valid now; none while `access.keys_file` cannot be used, and if no key is asked for."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._keyring: Keyring | None = None

    def now(self) -> tuple[Key, ...]:
        """All of them."""
        if not self._access.asked_for:
            return ()
        if self._keyring is None:
            try:
                self._keyring = Keyring(self._access)
            except ConfigError:  # the workers have logged it, and go on with the keys that they had
                return ()
        return self._keyring.now()

    def with_digest(self, digest: str) -> Key | None:
        """Return the key that has this hash, in hexadecimal digits."""
        return next((key for key in self.now() if key.digest.hex() == digest), None)
