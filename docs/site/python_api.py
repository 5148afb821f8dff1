"""The public names of the Python client, by the module that each is in, for Sphinx's autodoc to describe."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from sphinx.ext.autodoc.mock import mock

import slipstream_client

NOT_INSTALLED = ["anyio", "datasets", "gepa", "huggingface_hub", "openai", "tensorboard", "tqdm"]
"""What the tuner imports by its extra, which the environment of the site does not have."""


def page() -> str:
    return "\n".join(_sections())


def _sections() -> Iterator[str]:
    for module, names in groupby(slipstream_client._WHERE, slipstream_client._WHERE.__getitem__):
        yield f"## {module.replace('.', ': ').replace('_', ' ').capitalize()}\n"
        yield "```{eval-rst}"
        yield ".. currentmodule:: slipstream_client\n"
        for name in names:
            yield f".. {_directive(module, name)}:: {name}\n"
        yield "```\n"


def _directive(module: str, name: str) -> str:
    value = _value(module, name)
    if isinstance(value, type):
        exception = issubclass(value, BaseException)
        return f"auto{'exception' if exception else 'class'}"
    return "autofunction" if inspect.isroutine(value) else "autodata"


def _value(module: str, name: str) -> Any:
    with mock(NOT_INSTALLED):
        return getattr(importlib.import_module(f"slipstream_client.{module}"), name)
