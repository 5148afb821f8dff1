"""Sandboxes: what tools with side effects run on in a replay, in place of the world."""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import FunctionType, MappingProxyType
from typing import Any

logger = logging.getLogger("slipstream_client")


class SandboxClosed(RuntimeError):
    """A tool was called after the sandbox of its run was closed."""


class Sandboxes:
    """The sandbox objects of one run: one of each class, made when it is first needed."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._objects: dict[type, Any] = {}
        self._exits = ExitStack()
        self._closed = False

    def of(self, kind: type) -> Any:
        """Return this run's object of a class; for a context manager, what entering it gives.

        Raises:
            SandboxClosed: the run has ended.
            Exception: what making or entering it raises; the next call tries again.
        """
        with self._lock:  # tools that run in parallel share one object
            if self._closed:
                raise SandboxClosed(f"the run has ended, and with it its {kind.__qualname__}")
            if kind not in self._objects:
                made = kind()
                self._objects[kind] = self._exits.enter_context(made) if hasattr(kind, "__exit__") else made
            if not self._closed:
                return self._objects[kind]
            exits = self._exits.pop_all()
        exits.close()  # the run ended meanwhile: no other code will close it
        raise SandboxClosed(f"the run has ended, and with it its {kind.__qualname__}")

    @property
    def objects(self) -> Mapping[type, Any]:
        """The objects that were made, by class."""
        return MappingProxyType(self._objects)

    def end(self) -> None:
        """Make no more objects. Returns at once."""
        self._closed = True

    def close(self) -> None:
        """End, and leave the context managers, the last one first. What they raise is a line in the log."""
        self.end()
        with self._lock:
            exits = self._exits.pop_all()
        try:
            exits.close()
        except Exception as error:
            logger.warning("a sandbox was not left as it should be: %r", error, exc_info=True)


class Sandbox:
    """Stand-in of a tool in a replay: a function, or the method of the tool's name of an object for each run.

    Args:
        stand_in: the function or the class.
        tool: the function that it stands in for.

    Raises:
        TypeError, ValueError: it cannot stand in for this tool; the message begins with `sandbox`.
    """

    def __init__(self, stand_in: Callable[..., Any] | type, tool: Callable[..., Any]) -> None:
        self._stand_in = stand_in
        self._name = tool.__name__
        signature = inspect.signature(tool)
        self._is_method = is_method(signature)
        if stand_in is tool:
            raise ValueError(
                "sandbox: expected another function, found the tool itself, which must not run in a replay"
            )
        function: Any = stand_in
        if isinstance(stand_in, type):
            function = getattr(stand_in, self._name, None)
            if not callable(function):
                raise TypeError(f"sandbox: {stand_in.__qualname__} has no method {self._name}")
            if hasattr(stand_in, "__aexit__") and not hasattr(stand_in, "__exit__"):
                raise TypeError(
                    f"sandbox: {stand_in.__qualname__} is an asynchronous context manager; make it a plain one"
                )
        elif not callable(stand_in):
            raise TypeError(f"sandbox: expected a function or a class, found {stand_in!r}")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"sandbox: expected a function that returns a result, found the generator {function!r}")
        if is_async(function) and not inspect.iscoroutinefunction(tool):
            raise TypeError(f"sandbox: {self._name} is no async function, so its sandbox cannot be one")
        if isinstance(stand_in, type):
            bound = isinstance(inspect.getattr_static(stand_in, self._name), FunctionType)
            expect_arguments("sandbox", function, signature, "own" if bound else "none")
        else:
            expect_arguments("sandbox", function, signature, "tool's")

    @property
    def is_per_run(self) -> bool:
        """True of a class: its calls need the run's own object."""
        return isinstance(self._stand_in, type)

    def call(self, sandboxes: Sandboxes, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run it. Raises what it raises."""
        if not isinstance(self._stand_in, type):
            return self._stand_in(*args, **kwargs)
        own = args[1:] if self._is_method else args
        return getattr(sandboxes.of(self._stand_in), self._name)(*own, **kwargs)


def is_async(function: Any) -> bool:
    """Return whether calling it gives a coroutine, as far as that can be known before."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def is_method(signature: inspect.Signature) -> bool:
    """Return whether a function's first parameter is the object that it belongs to."""
    return next(iter(signature.parameters), None) in ("self", "cls")


def expect_arguments(what: str, function: Any, tool: inspect.Signature, first: str = "tool's") -> None:
    """Check that a function takes a tool's arguments, by position and by name, as agents give them.

    Args:
        first: of a tool that is a method, its object goes before the arguments (`"tool's"`), an object of the
            function's `"own"`, or `"none"`.

    Raises:
        TypeError: it does not; the message begins with `what`.
    """
    try:
        own = inspect.signature(function)
    except (TypeError, ValueError):  # written in C
        return
    parameters = list(tool.parameters.values())
    if is_method(tool):
        parameters = parameters[1:]
        before = 0 if first == "none" else 1
    else:
        before = 1 if first == "own" else 0
    only = [each for each in parameters if each.kind is each.POSITIONAL_ONLY]
    either = [each for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    named = {each.name: None for each in parameters if each.kind is each.KEYWORD_ONLY}
    try:
        own.bind(*[None] * (before + len(only) + len(either)), **named)
        own.bind(*[None] * (before + len(only)), **{each.name: None for each in either}, **named)
    except TypeError as error:
        raise TypeError(f"{what}: expected a function of the tool's arguments {tool}, found {own}: {error}") from None
