"""Reward calculators by the names that they have under `rewards.calculators`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeVar

from slipstream.rewards.calculator import Parameters

_P = TypeVar("_P", bound=Parameters)

_by_name: dict[str, type[Parameters]] = {}

CALCULATORS: Mapping[str, type[Parameters]] = MappingProxyType(_by_name)


def calculator(name: str) -> Callable[[type[_P]], type[_P]]:
    """Register a class of parameters as the calculator of this name.

    Raises:
        ValueError: another calculator has the name.
    """

    def register(parameters: type[_P]) -> type[_P]:
        if name in _by_name:
            raise ValueError(f"two reward calculators of the name {name}: {_by_name[name]} and {parameters}")
        _by_name[name] = parameters
        return parameters

    return register
