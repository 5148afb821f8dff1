"""The export of a data set from a large store: seconds, and peak memory.

    python benchmarks/dataset_export.py FOLDER [--calls 1000000] [--ray]

The store is made once, in FOLDER: production's answers of about 500 bytes to as many different questions, in
conversations of one call. Each command is a process of its own, as a user starts it.
"""

from __future__ import annotations

import argparse
import json
import resource
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from slipstream.store.bodies import pack

_WORDS = [
    "parcel",
    "price",
    "delivery",
    "address",
    "invoice",
    "refund",
    "order",
    "colour",
    "size",
    "weight",
    "return",
    "label",
]
_CHUNK = 20_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--ray", action="store_true", help="by Ray Data on two workers too")
    parser.add_argument("--near", action="store_true", help="with near-duplicate removal")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    store = arguments.folder / f"calls-{arguments.calls}.db"
    if not store.exists():
        fill(store, arguments.calls)
    (arguments.folder / "sidecar.yaml").write_text(
        json.dumps({"store": {"url": f"sqlite+aiosqlite:///{store}"}, "datasets": {"directory": str(arguments.folder)}})
    )
    dedup = {"dedup": {"near": 0.85}} if arguments.near else {}
    dataset = {"name": "large", "sources": [{"production": {}}], "held_out": {"share": 0.1}, **dedup}
    (arguments.folder / "data.yaml").write_text(json.dumps({"dataset": dataset}))
    digests = set()
    for more in ([], ["--ray", "2"]) if arguments.ray else ([],):
        began = time.monotonic()
        command = ["dataset", "export", "--replace", "--data", "data.yaml", "--config", "sidecar.yaml", *more]
        subprocess.run([sys.executable, "-m", "slipstream", *command], cwd=arguments.folder, check=True)
        seconds = time.monotonic() - began
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        manifest = json.loads((arguments.folder / "large" / "manifest.json").read_text())
        digests.add(manifest["digest"])
        how = "Ray Data, two workers" if more else "one process"
        print(
            f"{how}: {arguments.calls} calls, {seconds:.0f} s, peak {peak:.0f} MiB, rows {manifest['counts']['rows']}"
        )
    if len(digests) != 1:
        sys.exit("dataset_export: the outputs differ")


def fill(path: Path, calls: int) -> None:
    """Make a store of the newest schema with so many calls."""
    command = "import asyncio, sys\nfrom slipstream.store.database import Database\n"
    command += "async def make():\n    store = Database(sys.argv[1])\n    await store.open()\n    await store.close()\n"
    command += "asyncio.run(make())"
    subprocess.run([sys.executable, "-c", command, f"sqlite+aiosqlite:///{path}"], check=True)
    store = sqlite3.connect(path)
    store.execute("PRAGMA synchronous=OFF")
    for first in range(0, calls, _CHUNK):
        last = min(first + _CHUNK, calls)
        store.executemany(
            "INSERT INTO tasks (id, session_id, state, revision, marked, labels, meta, decided, selected, created_at, "
            "updated_at) VALUES (?, ?, 'complete', 1, 0, '[]', '{}', 1, 0, ?, ?)",
            ((f"t{n:09}", f"s{n // 2:09}", float(n), float(n)) for n in range(first, last)),
        )
        store.executemany(
            "INSERT INTO calls (id, task_id, position, msg_id, request, answer, latency, started_at) "
            "VALUES (?, ?, 0, ?, ?, ?, 0.5, ?)",
            _calls(first, last),
        )
        store.commit()
    store.close()


def _calls(first: int, last: int) -> Iterator[tuple[object, ...]]:
    for n in range(first, last):
        words = " ".join(_WORDS[(n >> shift) % len(_WORDS)] for shift in range(0, 20, 4))
        request = {"model": "prod", "messages": [{"role": "user", "content": f"Question {n} about the {words}?"}]}
        text = f"The answer to {n}: " + " ".join(f"the {word} is {n % (at + 7)}" for at, word in enumerate(_WORDS * 2))
        answer = {"id": f"chatcmpl-{n}", "choices": [{"message": {"content": text}, "finish_reason": "stop"}]}
        yield n + 1, f"t{n:09}", f"chatcmpl-{n}", pack(request), pack(answer), float(n)


if __name__ == "__main__":
    main()
