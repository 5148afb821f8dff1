"""Figures of the code's structure, for a checkout of this repository or several, as a table.

    python benchmarks/structure.py [DIR ...]

Parts are the modules and folders directly below `service/slipstream`. Two parts form a cycle when each reaches the
other by imports; imports for type checking only count too. A line counts whatever is on it.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

_OPENING = re.compile(r"(What|Whether|How|Where|Of|As what)\b")
_ARGUMENTS = 8


def modules(folder: Path) -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(folder.rglob("*.py")):
        yield path, ast.parse(path.read_text(encoding="utf-8"))


def lines(folder: Path) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in folder.rglob("*.py"))


def long_constructors(folder: Path) -> int:
    """Constructors with more than eight arguments beside `self`."""
    found = 0
    for _, tree in modules(folder):
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                arguments = node.args
                found += len([*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]) - 1 > _ARGUMENTS
    return found


def riddles(folder: Path) -> int:
    """Docstrings that begin like a question or a fragment."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    return sum(
        bool(_OPENING.match(ast.get_docstring(node) or ""))
        for _, tree in modules(folder)
        for node in ast.walk(tree)
        if isinstance(node, documented)
    )


def imports(package: Path) -> dict[str, set[str]]:
    """Each part of the package with those that it imports."""
    graph: dict[str, set[str]] = {}
    for path, tree in modules(package):
        part = path.relative_to(package).parts[0].removesuffix(".py")
        if part == "__init__":
            continue
        targets = graph.setdefault(part, set())
        for node in ast.walk(tree):
            names = []
            if isinstance(node, ast.ImportFrom) and node.module:
                whole = node.module == package.name  # `from slipstream import logs` names the part behind it
                names = [f"{node.module}.{each.name}" for each in node.names] if whole else [node.module]
            elif isinstance(node, ast.Import):
                names = [each.name for each in node.names]
            targets |= {name.split(".")[1] for name in names if name.startswith(f"{package.name}.")} - {part}
    return {part: targets & graph.keys() for part, targets in graph.items()}


def in_cycles(graph: dict[str, set[str]]) -> int:
    """Number of parts that reach themselves."""
    return sum(part in _reached(graph, part) for part in graph)


def _reached(graph: dict[str, set[str]], start: str) -> set[str]:
    reached: set[str] = set()
    open_ends = set(graph[start])
    while open_ends:
        part = open_ends.pop()
        reached.add(part)
        open_ends |= graph[part] - reached
    return reached


def figures(root: Path) -> dict[str, int]:
    service, client = root / "service" / "slipstream", root / "client" / "slipstream_client"
    graph = imports(service)
    return {
        "modules at the top of `service/slipstream`": len([*service.glob("*.py")]),
        "folders there": len([path for path in service.iterdir() if (path / "__init__.py").exists()]),
        "parts of the service that are in a cycle of imports": in_cycles(graph),
        "imports between two parts that import each other": sum(
            part in graph[other] for part, targets in graph.items() for other in targets
        ),
        "parts of the client that are in a cycle of imports": in_cycles(imports(client)),
        "constructors with more than eight arguments": long_constructors(service) + long_constructors(client),
        "docstrings that begin with What, Whether, How, Where or Of": riddles(service) + riddles(client),
        "modules of the service with more than 300 lines": sum(
            len(path.read_text(encoding="utf-8").splitlines()) > 300 for path in service.rglob("*.py")
        ),
        "lines of Python in `service/`": lines(root / "service"),
        "lines of Python in `client/`": lines(root / "client"),
        "lines of Python in `tests/`": lines(root / "tests"),
    }


def main() -> None:
    roots = [Path(each) for each in sys.argv[1:]] or [Path(__file__).parents[1]]
    tables = [figures(root) for root in roots]
    print("| |", " | ".join(root.resolve().name for root in roots), "|\n|---|" + "---:|" * len(roots))
    for name in tables[0]:
        print(f"| {name} |", " | ".join(f"{table[name]:,}" for table in tables), "|")


if __name__ == "__main__":
    main()
