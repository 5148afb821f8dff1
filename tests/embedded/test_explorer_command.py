from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import httpx
import pytest
import yaml
from commands import slipstream
from ports import free_port
from serving import until

from slipstream.cli import model
from slipstream.embedded import serving
from slipstream.embedded.config import EngineConfig


@contextmanager
def explorer_process(config: EngineConfig, path: Path) -> Iterator[subprocess.Popen[str]]:
    path.write_text(yaml.safe_dump(config.model_dump(mode="json")))
    command = [sys.executable, "-m", "slipstream", "explorer", "--config", str(path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | {"NO_COLOR": "1"}) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.slow
async def test_it_says_when_it_is_ready_and_ends_in_order(explorer_config: EngineConfig, tmp_path: Path) -> None:
    port = free_port()
    explorer = explorer_config.explorer.model_copy(update={"proxy_port": port})
    with explorer_process(explorer_config.model_copy(update={"explorer": explorer}), tmp_path / "e.yaml") as process:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:

            async def healthy() -> bool:
                assert process.poll() is None
                try:
                    return (await http.get("/health")).status_code == 200
                except httpx.TransportError:
                    return False

            await until(healthy, seconds=60)
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=20)

    assert process.returncode == 0
    assert log.count("explorer ready") == 1
    assert f"http://127.0.0.1:{port}" in log
    assert "Traceback" not in log


@pytest.mark.slow
def test_a_model_that_is_not_there_is_a_clear_end(explorer_config: EngineConfig, tmp_path: Path) -> None:
    model = explorer_config.model.model_copy(update={"model_path": str(tmp_path / "absent")})
    with explorer_process(explorer_config.model_copy(update={"model": model}), tmp_path / "e.yaml") as process:
        _, log = process.communicate(timeout=60)

    assert process.returncode != 0
    assert "model.model_path: expected a Hugging Face model directory" in log
    assert "Traceback" not in log


async def test_a_model_that_nothing_trains_is_served_with_the_context_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[EngineConfig] = []
    monkeypatch.setattr(serving, "serve", served.append)
    monkeypatch.setattr(model, "relayed", nullcontext)
    monkeypatch.setattr(model, "exit_0_on_signals", lambda: None)  # it runs in a thread here
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 8192}')
    for option in ((), ("--max-model-len", "8192")):
        code, _, err = await slipstream("model", "serve", str(tmp_path), *option)
        assert code == 0, err
    assert [config.model.max_model_len for config in served] == [4096, 8192]
