"""Reads the configuration: variables over the file over the defaults.

The file is YAML, in which `${NAME}` and `${NAME:-default}` stand for environment variables wherever a string value
may stand, and `${file:PATH}` for the text of a file, such as a secret of a container.
`SLIPSTREAM_<SECTION>__<KEY>` replaces the key's whole value, parsed as YAML; further `__` go deeper, and a number
picks an item of a list (`SLIPSTREAM_SELECTION__ANY__1__SAMPLING__RATE=0.5`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from slipstream.config.problems import KeyPath, describe, dotted
from slipstream.config.yaml_text import parse, read_text
from slipstream.errors import ConfigError
from slipstream.settings.sidecar import Settings
from slipstream.user_code.python_object import importing, search_in

PREFIX = "SLIPSTREAM_"

_OTHERS = {
    "SLIPSTREAM_API_KEY",
    "SLIPSTREAM_TO_TRINITY",
    "SLIPSTREAM_URL",
    "SLIPSTREAM_USER_API_KEY",
    "SLIPSTREAM_VLLM_PYTHON",
}
"""Variables that are no keys: of the command's options, and of slipstream-sidecar-client, which may run where the
sidecar does."""

# `${NAME}` is no plain scalar inside `{...}` of YAML. While the text is parsed, its three signs are replaced by
# characters that mean nothing to YAML nor to anybody (of the private use area), which also keeps the columns right.
_REFERENCE = re.compile(r"\$\{([^{}\n]*)\}")
_HIDDEN_REFERENCE = re.compile("\ue000\ue001([^\ue002]*)\ue002")
_NAME_AND_DEFAULT = re.compile(
    r"(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)|file:(?P<file>.+?))(?::-(?P<default>.*))?", re.DOTALL
)


def load_settings(path: Path | None, environ: Mapping[str, str], *, imports: bool = True) -> Settings:
    """The configuration from a file (or from none) and the environment.

    Modules that it names as `package.module:Object` may lie in the file's folder, or in the working directory.

    Args:
        imports: import these modules, to refuse what cannot be used. Importing runs code of the user's own, which may
            hang: production must not wait for it.

    Raises:
        ConfigError: with one line for each thing that is wrong.
    """
    tree = _read_file(path) if path else {}
    search_in(*([path.parent] if path else []), Path.cwd())
    variables = _override(tree, environ)
    problems: list[str] = []
    tree = _interpolate(tree, environ, (), problems)
    if problems:
        raise ConfigError(*problems)
    try:
        with importing(imports):
            return Settings(**tree)
    except ValidationError as error:
        raise ConfigError(*describe(error, Settings, variables)) from None  # pydantic's own text shows secrets


def _read_file(path: Path) -> dict[str, Any]:
    text = read_text(path)
    if text is None:
        raise ConfigError(f"{path}: no such file")
    tree = parse(_REFERENCE.sub("\ue000\ue001\\1\ue002", text), str(path))
    if tree is None:
        return {}
    if not isinstance(tree, dict) or not all(isinstance(key, str) for key in tree):
        raise ConfigError(f"{path}: expected a mapping of sections such as `production:`")
    return {key: _unshared(value) for key, value in tree.items()}


def _unshared(value: Any) -> Any:
    """A copy in which each use of a YAML alias is a value of its own: a variable then changes only the one it names."""
    if isinstance(value, dict):
        return {key: _unshared(child) for key, child in value.items()}
    return [_unshared(child) for child in value] if isinstance(value, list) else value


def _override(tree: dict[str, Any], environ: Mapping[str, str]) -> dict[tuple[str, ...], str]:
    """Puts the values of variables into the tree; gives the name of the variable that set each key."""
    variables = {
        tuple(name.removeprefix(PREFIX).lower().split("__")): name
        for name in environ
        if name.startswith(PREFIX) and name not in _OTHERS
    }
    for keys in sorted(variables, key=len):  # a whole section first, then single keys of it
        name = variables[keys]
        *parents, last = keys
        target: Any = tree
        for depth, key in enumerate(parents):
            child = _child(target, key)
            if child is None:
                child = {}
                _put(target, key, child, name, keys[:depth])
            target = child
        _put(target, last, _variable(environ[name], name), name, tuple(parents))
    return variables


def _variable(text: str, name: str) -> Any:
    """Return the value of a variable. One that begins with * is plain text, such as a cron expression or a password: an
    alias could name nothing here."""
    return text if text.startswith("*") else parse(text, name)


def _child(target: Any, key: str) -> Any:
    if isinstance(target, dict):
        return target.get(key)
    if isinstance(target, list) and key.isdecimal() and int(key) < len(target):
        return target[int(key)]
    return None


def _put(target: Any, key: str, value: Any, variable: str, parents: KeyPath) -> None:
    if isinstance(target, dict):
        target[key] = value
    elif isinstance(target, list) and key.isdecimal() and int(key) < len(target):
        target[int(key)] = value
    elif isinstance(target, list):
        raise ConfigError(f"{variable}: expected an item of {dotted(parents)}, 0 to {len(target) - 1}; found {key}")
    else:
        whole = PREFIX + "__".join(map(str, parents)).upper()
        raise ConfigError(f"{variable}: {dotted(parents)} has a plain value, with no key {key} in it; set {whole}")


def _interpolate(value: Any, environ: Mapping[str, str], path: KeyPath, problems: list[str]) -> Any:
    if isinstance(value, dict):
        shown = {_HIDDEN_REFERENCE.sub(r"${\1}", key) if isinstance(key, str) else key: value[key] for key in value}
        return {key: _interpolate(child, environ, (*path, key), problems) for key, child in shown.items()}
    if isinstance(value, list):
        return [_interpolate(child, environ, (*path, place), problems) for place, child in enumerate(value)]
    if not isinstance(value, str):
        return value

    def resolve(reference: re.Match[str]) -> str:
        match = _NAME_AND_DEFAULT.fullmatch(reference[1])
        if not match:
            known = "${NAME}, ${NAME:-default}, ${file:PATH} or ${file:PATH:-default}"
            problems.append(f"{dotted(path)}: expected {known}; found ${{{reference[1]}}}")
            return ""
        name, file, default = match["name"], match["file"], match["default"]
        try:
            found = environ.get(name) if name else read_text(Path(file))
        except ConfigError as error:
            problems.append(f"{dotted(path)}: {error}")
            return ""
        if found is None and default is None:
            missing = f"the variable {name} is not set" if name else f"{file}: no such file"
            problems.append(f"{dotted(path)}: {missing} (${{{reference[1]}:-}} would allow that)")
        return found or default or ""

    return _HIDDEN_REFERENCE.sub(resolve, value)
