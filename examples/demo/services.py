"""The programs of the demo: the production model, the Explorer, the Trainer, the sidecar, and a lane if one is set."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks import TASKS_A_STEP

from slipstream.local.supervisor import Child, supervise
from slipstream.local.up import children

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Services:
    """Addresses of the services.

    Attributes:
        agent_url: the sidecar's, as the agent's `base_url`.
        policy_url: the Explorer's, to measure the policy model with.
        sidecar_url: of the control API.
    """

    agent_url: str
    policy_url: str
    sidecar_url: str
    programs: tuple[Child, ...]
    log_path: Path


def configured(
    model: Path, run_dir: Path, seed: int, sidecar_file: str = "sidecar.yaml", tasks_a_step: int = TASKS_A_STEP
) -> Services:
    """Takes free ports, puts what the four files ask for into the environment, and reads them.

    Args:
        sidecar_file: one with a lane makes `slipstream up` run that too.

    Raises:
        ConfigError: a file is wrong.
    """
    production, explorer, lane, sidecar = free_ports(4)
    set_environment(
        MODEL_PATH=model,
        RUN_DIR=run_dir,
        SEED=seed,
        BATCH=tasks_a_step * 8,  # answers a task: `runs.repeat_time`, `algorithm.repeat_times`
        PRODUCTION_PORT=production,
        EXPLORER_PORT=explorer,
        LANE_PORT=lane,
        SIDECAR_PORT=sidecar,
    )
    os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))  # Explorer and Trainer work in turns here
    production_model = Child(
        name="production",
        command=(sys.executable, "-uP", "-m", "slipstream", "explorer", "--config", "production.yaml"),
        ready_url=f"http://127.0.0.1:{production}/health",
    )
    return Services(
        agent_url=f"http://127.0.0.1:{sidecar}/v1",
        policy_url=f"http://127.0.0.1:{explorer}/v1",
        sidecar_url=f"http://127.0.0.1:{sidecar}",
        programs=(production_model, *children(Path(sidecar_file), Path("explorer.yaml"), Path("trainer.yaml"))),
        log_path=run_dir / "services.log",
    )


def set_environment(**values: object) -> None:
    """Gives the four files what they ask for, and goes to their folder."""
    os.environ |= {name: str(value) for name, value in values.items()}
    os.chdir(_HERE)  # the sidecar looks for `reward:calculator_used_rightly` where it is started


async def run_beside(services: Services, work: Coroutine[Any, Any, None]) -> bool:
    """Runs `work` while the services run, and stops them after it. False: stopped by a signal before its end.

    Raises:
        ChildFailed: one of the services could not be kept running.
    """
    with services.log_path.open("w") as log:
        supervising = asyncio.create_task(supervise(services.programs, out=log))
        working = asyncio.create_task(work)
        await asyncio.wait({supervising, working}, return_when=asyncio.FIRST_COMPLETED)
        if not supervising.done():
            signal.raise_signal(signal.SIGTERM)  # as `slipstream up` is ended: the services stop in their order
        working.cancel()
        await asyncio.wait({working})
        await supervising  # first: what stopped the services is why the work failed, where both did
    if working.cancelled():
        return False
    working.result()
    return True


def free_ports(count: int) -> list[int]:
    """Find so many ports on loopback that nothing listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
