"""`explorer.yaml` and `trainer.yaml` as plain data: overlays merged in, variables and resolvers worked out.

OmegaConf, which Trinity-RFT reads these files with, merges as Trinity does: a mapping key by key, anything else (a
list too) whole, and what comes later wins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from slipstream.errors import ConfigError

_NO_VARIABLE = re.compile(r"Environment variable '(\w+)' not found")


def load_document(path: Path, overlays: Sequence[Path] = ()) -> dict[str, Any]:
    """Reads the file, merges the overlays over it in their order, and resolves every `${...}`.

    Raises:
        ConfigError: a file cannot be read or is no YAML mapping; or values cannot be resolved, such as an environment
            variable that is not set. Names the file, the key and the variable, one problem a line.
    """
    layers = [(each, _layer(each)) for each in (path, *overlays)]
    merged = cast(DictConfig, OmegaConf.merge(*(layer for _, layer in layers)))
    problems = [f"{_source(layers, key)}: {key}: {what}" for key, what in _unresolved(merged)]
    if problems:
        raise ConfigError(*problems)
    return cast(dict[str, Any], OmegaConf.to_container(merged, resolve=True))


def _layer(path: Path) -> DictConfig:
    try:
        layer = OmegaConf.load(path)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    except (OmegaConfBaseException, YAMLError) as error:
        raise ConfigError(f"{path}: {error}") from error
    if not isinstance(layer, DictConfig):
        raise ConfigError(f"{path}: expected a mapping of fields, found a list")
    return layer


def _unresolved(node: DictConfig | ListConfig) -> Iterator[tuple[str, str]]:
    """Each key whose value cannot be worked out, as a dotted path, and why."""
    keys: list[Any] = list(node.keys() if isinstance(node, DictConfig) else range(len(node)))
    for key in keys:
        try:
            value = node[key]
        except OmegaConfBaseException as error:
            yield str(error.full_key), _words(error)
        else:
            if isinstance(value, DictConfig | ListConfig):
                yield from _unresolved(value)


def _words(error: OmegaConfBaseException) -> str:
    said = str(error.msg).partition("\n")[0]
    variable = _NO_VARIABLE.search(said)
    return f"expected the environment variable {variable[1]}, which is not set" if variable else said


def _source(layers: Sequence[tuple[Path, DictConfig]], key: str) -> Path:
    """The file that gives the key its value: the last that has it."""
    for path, layer in reversed(layers):
        value: Any = OmegaConf.to_container(layer)
        for part in re.findall(r"[^.\[\]]+", key):
            if isinstance(value, list):
                value = value[int(part)] if int(part) < len(value) else None
            else:
                value = value.get(part) if isinstance(value, dict) else None
        if value is not None:
            return path
    return layers[0][0]
