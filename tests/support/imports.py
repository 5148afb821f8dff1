"""Imports of Python files, read from their source: nothing is run."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
OURS = {"slipstream": ROOT / "service", "slipstream_client": ROOT / "client"}


def third_party(file: Path, beside: tuple[Path, ...] = (), *, inner: bool = False) -> set[str]:
    """Top-level packages, neither ours nor Python's, that importing a file needs, through all of our modules.

    Args:
        beside: folders whose modules it finds by their bare name, as PYTHONPATH would have them.
        inner: also what the functions of this file import, as those of a script that is run do.
    """
    return _third_party(file.resolve(), (file.parent, *beside), inner)


def module_file(name: str) -> Path:
    """The source file of one of our modules, `slipstream.trinity.launch`."""
    return _module_file(OURS[name.partition(".")[0]], name)


def _third_party(start: Path, beside: tuple[Path, ...], inner: bool) -> set[str]:
    found: set[str] = set()
    seen: set[Path] = set()
    waiting = [start]
    while waiting:
        file = waiting.pop()
        if file in seen:
            continue
        seen.add(file)
        for name in _imports(file, inner and file == start):
            top = name.partition(".")[0]
            if top in OURS:
                waiting += _modules(OURS[top], name)
            elif local := next((place / f"{top}.py" for place in beside if (place / f"{top}.py").exists()), None):
                waiting.append(local)
            elif top not in sys.stdlib_module_names:
                found.add(top)
    return found


def _modules(root: Path, name: str) -> Iterator[Path]:
    """The files that importing a dotted name runs: its packages' `__init__` too."""
    parts = name.split(".")
    for length in range(1, len(parts) + 1):
        file = _module_file(root, ".".join(parts[:length]))
        if file.exists():
            yield file


def _module_file(root: Path, name: str) -> Path:
    path = root.joinpath(*name.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@cache
def _imports(file: Path, inner: bool) -> tuple[str, ...]:
    """Dotted names, one also for what `from package import module` may be."""
    return tuple(_names(ast.parse(file.read_text(encoding="utf-8")), inner))


def _names(node: ast.AST, inner: bool) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.module, "no relative imports"
            yield child.module
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            pass
        elif inner or not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _names(child, inner)


def distributions(names: set[str], installed: Mapping[str, list[str]], known: Mapping[str, str]) -> set[str]:
    """What provides these top-level packages, by the names that pip knows."""
    return {known.get(name) or installed.get(name, [name])[0] for name in names}
