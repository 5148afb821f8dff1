"""Try clients and write what came of them into a page. `make client-matrix` runs it."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from bench import region

from matrix.client import Client, clients
from matrix.report import REGION, markdown
from matrix.trial import Outcome, tried


def main() -> int:
    """Try the clients; 1 if one of them is not installed or fails, and then nothing is written."""
    parser = argparse.ArgumentParser(prog="matrix", description="How the calls of other people's clients are captured.")
    parser.add_argument("client", nargs="*", help="folders in tests/clients, or rows such as agno-chat (default: all)")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the table into this page, of all clients")
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="write outcomes there, and take those that are there"
    )
    options = parser.parse_args()
    wanted = set(options.client)
    chosen = [client for client in clients() if not wanted or {client.name, client.folder} & wanted]
    if options.write and (problem := region.unwritable(options.write, REGION)):
        parser.error(problem)
    outcomes, failed = [], []
    for client in chosen:
        try:
            outcomes.append(_outcome(client, options.keep))
        except (AssertionError, TimeoutError) as error:
            print(f"{client.name}: {str(error) or type(error).__name__}", file=sys.stderr)
            failed.append(client.name)
            continue
        print(outcomes[-1], flush=True)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    elif options.write and len(chosen) == len(clients()):
        region.write(options.write, REGION, markdown(list(zip(chosen, outcomes, strict=True))))
    return 1 if failed else 0


def _outcome(client: Client, keep: Path | None) -> Outcome:
    kept = keep / f"{client.name}.json" if keep else None
    if kept and kept.exists() and (outcome := Outcome.read(kept)).version == client.version:
        return outcome
    assert client.installed, "not installed: make clients"
    with tempfile.TemporaryDirectory(prefix="client-") as folder:
        outcome = asyncio.run(tried(client, Path(folder)))
    if kept:
        kept.parent.mkdir(parents=True, exist_ok=True)
        outcome.save(kept)
    return outcome


if __name__ == "__main__":
    raise SystemExit(main())
