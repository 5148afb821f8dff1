"""Schedules as processes of their own, and what is said about them: lines, a failure's timeline, the table."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from chaos import sandbox
from chaos.faults import FAULTS, Fault
from chaos.schedule import schedule_of

Outcome = dict[str, Any]
"""A `Verdict` as it was written by its process."""

_LONGEST = 240
"""Seconds until a schedule is given up: it settles within 60, and so do its starts."""


async def run(seed: int, keep: Path | None = None) -> Outcome:
    """Run a schedule in a sandbox. What goes wrong with the harness itself is a violation too."""
    # short, for the Unix sockets below it; not the environment's, which may be deep
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    result = folder / "verdict.json"
    command = [*sandbox.entrance(), sys.executable, "-m", "chaos", "--here"]
    command += ["--seeds", str(seed), "--json", str(result)]
    if keep is not None:
        command += ["--keep", str(keep)]
    process = await asyncio.create_subprocess_exec(
        *command,
        env={**os.environ, "TMPDIR": str(folder), "OMP_NUM_THREADS": "1"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        said, _ = await asyncio.wait_for(process.communicate(), _LONGEST)
        if result.exists():
            outcome: Outcome = json.loads(result.read_text())
            return outcome
        return _broken(seed, said.decode(errors="replace")[-3000:])
    except TimeoutError:
        return _broken(seed, f"it did not end within {_LONGEST} s")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _broken(seed: int, reason: str) -> Outcome:
    empty: dict[str, Any] = {
        "seconds": 0,
        "settled": None,
        "struck": {},
        "impossible": {},
        "counts": {},
        "timeline": [],
    }
    return {"seed": seed, "schedule": str(schedule_of(seed)), "violations": [reason], **empty}


def line(outcome: Outcome) -> str:
    verdict = "FAILED" if outcome["violations"] else "well"
    settled = "never" if outcome["settled"] is None else f"{outcome['settled']:.1f} s"
    return f"{outcome['seed']:>4} {verdict:<6} {outcome['seconds']:>5} s, settled {settled}: {outcome['schedule']}"


def failure(outcome: Outcome) -> str:
    """What failed, what was done when, and how to run it again."""
    violations = [f"  {one}" for one in outcome["violations"][:20]]
    more = len(outcome["violations"]) - len(violations)
    timeline = [f"  {at:6.2f} s  {what}" for at, what in outcome["timeline"]]
    return "\n".join(
        [
            f"seed {outcome['seed']} failed: {outcome['schedule']}",
            *violations,
            *([f"  and {more} more"] if more else []),
            *timeline,
            f"  run it again: make chaos SEEDS={outcome['seed']} ARGS='--keep chaos-output'",
        ]
    )


def table(outcomes: list[Outcome], command: str) -> str:
    """How often each fault was injected, and what came of the schedules that had it."""
    counts, failed = Counter[str](), sum(bool(outcome["violations"]) for outcome in outcomes)
    for outcome in outcomes:
        counts.update(outcome["counts"])
    lines = [
        f"`{command}`: {len(outcomes)} schedules, {failed} failed. {counts['answers']:,} answers of production were "
        f"compared byte by byte, {counts['feedback'] + counts['marks']:,} acknowledged feedbacks and marks looked for, "
        f"{counts['finished'] + counts['facade']:,} acknowledged ends of runs and rewards of the facade, "
        f"and what would be left of {counts['erased']:,} deleted sessions; "
        f"{counts['experiences']:,} experiences were trained on. {counts['refused']:,} requests to the control API "
        "were refused with a 5xx, and sent again.",
        "",
        "| fault | injected | in schedules | what happened | what was lost |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *(_row(fault, outcomes) for fault in FAULTS.values())])


def _row(fault: Fault, outcomes: list[Outcome]) -> str:
    having = [outcome for outcome in outcomes if outcome["struck"].get(fault.name)]
    if not having:
        impossible = any(fault.name in outcome["impossible"] for outcome in outcomes)
        why = "not possible on this machine" if impossible else "not drawn"
        return f"| {fault.what} | 0 | 0 | {why} | |"
    harm = "calls failed meanwhile" if fault.production else "no call of production failed by it"
    times = [outcome["settled"] for outcome in having]
    settled = "not all was delivered or given up" if None in times else f"settled within {max(times):.0f} s"
    lost = sum(len(outcome["violations"]) for outcome in having)
    struck = sum(outcome["struck"][fault.name] for outcome in having)
    loss = "nothing" if not lost else f"{lost} violations"
    return f"| {fault.what} | {struck} | {len(having)} | {harm}; {settled} | {loss} |"
