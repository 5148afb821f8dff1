"""Trinity-RFT's proxy, unmodified, with its SQL recorder, in front of one URL. Run by `.trinity-venv/bin/python`.

Real: the FastAPI application, ExplorerService, HistoryRecorder with SQLite. Not real: the engines, and all of Trinity
behind the proxy (Ray, the pipeline, the Trainer), which no chat touches. Arguments: port, URL, folder.
"""

from __future__ import annotations

import logging
import sys
from types import SimpleNamespace

import uvloop
from serve_trinity import HttpEngine  # from tests/trinity: it also stands in for vLLM where that is not installed
from trinity.explorer.proxy.service import ExplorerService


async def main(port: int, url: str, folder: str) -> None:
    """Serve until the server ends."""
    config = SimpleNamespace(
        explorer=SimpleNamespace(
            min_running_model_num=1,
            service_status_check_interval=60,
            max_timeout=900,
            db_url=f"sqlite:///{folder}/history.db",
        ),
        model=SimpleNamespace(temperature=1.0),
        synchronizer=SimpleNamespace(sync_timeout=600),
    )
    explorer = SimpleNamespace(models=[HttpEngine(url)], config=config, explore_step_num=0)
    service = ExplorerService(explorer, listen_address="127.0.0.1", port=port)
    await service.serve()
    await service.serve_task


if __name__ == "__main__":
    logging.disable(logging.INFO)  # among it uvicorn's access log, which Trinity leaves on
    # uvloop and httptools, as in an installation with vLLM: Ray runs its actors on uvloop where it is installed
    uvloop.run(main(int(sys.argv[1]), sys.argv[2], sys.argv[3]))
