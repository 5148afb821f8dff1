"""A YAML document of Trinity-RFT's as a tree of mappings."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def read(config_path: str) -> dict[str, Any]:
    """The document in a file.

    Raises:
        ValueError: there is none, or it is no mapping; `config_path` is named.
    """
    import yaml

    try:
        tree = yaml.safe_load(Path(config_path).read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise ValueError(f"config_path: {error}") from error
    if isinstance(tree, dict):
        return tree
    raise ValueError(f"config_path: expected a mapping of fields in {config_path}")


def write(path: Path, head: str, tree: dict[str, Any]) -> None:
    """Puts the document in place of what is there, whole or not at all; `head` is its comment."""
    import yaml

    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(head + yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")
    beside.replace(path)


def section(tree: dict[str, Any], *names: str) -> dict[str, Any]:
    """The mapping below these names, which is put there where there is none."""
    for name in names:
        if tree.get(name) is None:
            tree[name] = {}
        tree = tree[name]
    return tree
