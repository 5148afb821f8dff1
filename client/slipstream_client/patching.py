"""Methods of Python's own classes that are wrapped for a time, and put back exactly as they were."""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections.abc import Callable, Iterable
from typing import Any, Protocol

logger = logging.getLogger("slipstream_client")

Wrapping = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Makes the new method from the one that it takes the place of."""


class Installable(Protocol):
    """A change to another program's classes. It can be made again while it is made, and taken back."""

    def install(self) -> None: ...

    def remove(self) -> None: ...


class Patch:
    """A method that is replaced while it is wanted, if the class has one of its own then.

    Where another program has wrapped the method on top of ours, its wrapper stays: ours then does nothing but call the
    original until it is wanted again.
    """

    def __init__(self, owner: type, name: str, wrapping: Wrapping) -> None:
        self._owner = owner
        self._name = name
        self._wrapping = wrapping
        self._original: Any = None
        self._ours: Any = None
        self._wanted = False

    def install(self) -> None:
        self._wanted = True
        if self._ours is not None:  # below another program's, as `remove` left it
            return
        original = self._owner.__dict__.get(self._name)
        if original is None:  # inherited
            return

        def bound(instance: Any, /, *args: Any, **kwargs: Any) -> Any:
            # as Python does it: another program's wrapper (wrapt's) learns of the instance by this alone
            return original.__get__(instance, type(instance))(*args, **kwargs)

        wrapper = self._wrapping(bound)

        @functools.wraps(original)
        def method(*args: Any, **kwargs: Any) -> Any:
            return wrapper(*args, **kwargs) if self._wanted else bound(*args, **kwargs)

        self._original, self._ours = original, method
        setattr(self._owner, self._name, method)

    def remove(self) -> None:
        self._wanted = False
        if self._ours is None:
            return
        if self._owner.__dict__.get(self._name) is self._ours:
            setattr(self._owner, self._name, self._original)
            self._original = self._ours = None
        else:
            name = f"{self._owner.__module__}.{self._owner.__qualname__}.{self._name}"
            logger.warning("%s was wrapped by another program meanwhile: ours stays below it, and does nothing", name)


class Patches:
    """Patches that hold as long as at least one of those who asked for them has not handed them back."""

    def __init__(self, patches: Callable[[], Iterable[Installable]]) -> None:
        self._make = patches
        self._patches: list[Installable] | None = None
        self._lock = threading.Lock()
        self._holders = 0
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def hold(self) -> None:
        with self._lock:
            self._holders += 1
            if self._patches is None:
                self._patches = list(self._make())
            for patch in self._patches:  # those too that found nothing to wrap before
                patch.install()

    def release(self) -> None:
        """Raises RuntimeError if no caller holds them."""
        with self._lock:
            if self._holders == 0:
                raise RuntimeError("threads are not instrumented")
            self._holders -= 1
            if self._holders == 0:
                for patch in self._patches or ():
                    patch.remove()

    def _forked(self) -> None:
        self._lock = threading.Lock()  # a thread that is not here may have held it
