"""What importing the client costs an agent: fresh interpreters that have httpx already.

    python benchmarks/client_import.py [--rounds 20]

Each interpreter imports httpx, then times `import slipstream_client`, and from there the first mark and the first
feedback (whose request is sent by a thread, to nobody). Written as milliseconds, the median of all rounds: what passed,
and what it took of the CPU, which says more on a busy machine.
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
def now():
    return [time.perf_counter(), time.process_time()]
began = now()
import slipstream_client as slipstream
imported = now()
with slipstream.mark("a", task_id="order-17", reference="42"):
    pass
marked = now()
slipstream.feedback(task_id="order-17", thumbs="up")
said = now()
print(json.dumps([[after[0] - began[0], after[1] - began[1]] for after in (imported, marked, said)]), flush=True)
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
    for place, step in enumerate(STEPS):
        passed, cpu = (statistics.median(one[place][clock] for one in taken) * 1000 for clock in (0, 1))
        print(f"{step:<26} {passed:7.1f} ms, of the CPU {cpu:5.1f} ms")


if __name__ == "__main__":
    main()
