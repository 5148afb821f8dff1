"""What importing the client costs an agent: fresh interpreters that have httpx already.

    python benchmarks/client_import.py [--rounds 20]

Each interpreter imports httpx, then times `import slipstream_client`, and from there the first mark and the first
feedback (whose request is sent by a thread, to nobody). Written as milliseconds, the median of all rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys

STEPS = ["import slipstream_client", "and the first mark", "and the first feedback"]

TIMED = """
import json, os, time
import httpx
began = time.perf_counter()
import slipstream_client as slipstream
imported = time.perf_counter()
with slipstream.mark("a", task_id="order-17", reference="42"):
    pass
marked = time.perf_counter()
slipstream.feedback(task_id="order-17", thumbs="up")
said = time.perf_counter()
print(json.dumps([imported - began, marked - began, said - began]), flush=True)
os._exit(0)  # nobody is there to send anything to
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    environment = {**os.environ, "SLIPSTREAM_URL": "http://127.0.0.1:9"}
    command = [sys.executable, "-c", TIMED]
    subprocess.run(command, env=environment, check=True, capture_output=True)  # compiles what is not compiled yet
    taken = [
        json.loads(subprocess.run(command, env=environment, check=True, capture_output=True).stdout)
        for _ in range(rounds)
    ]
    for step, seconds in zip(STEPS, zip(*taken, strict=True), strict=True):
        print(f"{step:<26} {statistics.median(seconds) * 1000:7.1f} ms  (worst of {rounds}: {max(seconds) * 1000:.1f})")


if __name__ == "__main__":
    main()
