"""YAML of the configuration: files and values, with errors that name the place and quote nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from slipstream.errors import ConfigError


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, which by itself lets the last of two equal keys win in silence.

    Keys are looked at before `<<` puts those of other mappings among them.
    """

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(problem="a key is expected to be text", problem_mark=key.start_mark)
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"the key {key.value} is given twice", problem_mark=key.start_mark)
            seen.add(key.value)
        return node


def read_text(path: Path) -> str | None:
    """A file without the line ends that editors and `echo` put at its end; None where there is none.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8").rstrip("\r\n")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: expected text in UTF-8") from None


def read_yaml(path: Path) -> Any:
    """Read a separate YAML file, in which `${...}` is ordinary text.

    Raises:
        ConfigError: it cannot be read, or is no YAML.
    """
    text = read_text(path)
    if text is None:
        raise ConfigError(f"{path}: no such file")
    return parse(text, str(path))


def parse(text: str, origin: str) -> Any:
    """The value of a text in YAML.

    Args:
        origin: a file or a variable, for the error.

    Raises:
        ConfigError: it is no YAML. Nothing of its values is quoted, which may be secrets.
    """
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506  # a SafeLoader
    except yaml.MarkedYAMLError as error:  # its own text quotes the line, which may hold a secret
        mark = error.problem_mark
        where = f"{origin}:{mark.line + 1}:{mark.column + 1}" if mark else origin
        told = ", ".join(filter(None, (error.context, error.problem)))
        # The name of an alias or tag can be a password that begins with * or !.
        told = re.sub(r" (alias|anchor|tag|tag handle) ['\"].*", r" \1", told)
        hint = "; put a text that begins with * into quotation marks" if "alias" in told else ""
        raise ConfigError(f"{where}: {told}{hint}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{origin}: not YAML ({getattr(error, 'reason', type(error).__name__)})") from None
    except (ValueError, AttributeError, RecursionError) as error:  # PyYAML's own, of such as 2024-13-45, with the value
        text = f"{origin}: a value that YAML takes for a date or a number and that is none, or too many levels"
        raise ConfigError(f"{text} ({type(error).__name__}); put texts into quotation marks") from None
