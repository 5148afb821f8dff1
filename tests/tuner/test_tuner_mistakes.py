"""What a user gets wrong: it is said in his words, and no run of his ends or spoils more than itself."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from serving import serving, until
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from tuned import LearningExplorer, ask, dataset, one_call, questions, tuned

from slipstream_client import AlgorithmConfig, TunerModelConfig, WorkflowOutput, tune
from slipstream_client.tuner.errors import TunerError

_HERE = Path(__file__).parent


def exits(task: Any, model: Any) -> WorkflowOutput:
    ask(model)
    sys.exit(3)


async def exits_here(task: Any, model: Any) -> WorkflowOutput:
    sys.exit(3)


async def is_cancelled(task: Any, model: Any) -> WorkflowOutput:
    raise asyncio.CancelledError("the tool's")


def has_no_next(task: Any, model: Any) -> WorkflowOutput:
    ask(model)
    return next(iter(()))


@pytest.mark.parametrize(
    ("workflow", "said"),
    [
        (exits, "it exited with 3"),
        (exits_here, "it exited with 3"),
        (is_cancelled, "something that it waited for was cancelled: the tool's"),
        (has_no_next, "it raised StopIteration"),
    ],
)
async def test_a_run_that_would_end_the_program_is_dropped(
    folder: Path, workflow: Callable[..., Any], said: str
) -> None:
    data = dataset(folder / "d", questions(1))
    with pytest.raises(TunerError, match=f"2 runs was dropped; the first: RuntimeError: {said} .*tuner.log"):
        await asyncio.wait_for(tuned(LearningExplorer(), workflow, train_dataset=data), 30)


async def test_what_a_run_does_to_its_task_no_other_run_sees(folder: Path) -> None:
    def converses(task: Any, model: Any) -> WorkflowOutput:
        task["messages"].append({"role": "user", "content": "and?"})
        model.client.chat.completions.create(model="any", messages=task["messages"])
        return WorkflowOutput(reward=1.0)

    explorer = LearningExplorer()
    tasks = [{"messages": [{"role": "system", "content": "Count."}]}]
    await tuned(explorer, converses, size=3, train_dataset=dataset(folder / "d", tasks))
    assert [len(chat["messages"]) for chat in explorer.chats] == [2, 2, 2]


async def test_a_plain_workflow_has_loops_of_its_own(folder: Path) -> None:
    def twice(task: Any, model: Any) -> WorkflowOutput:
        async def chat() -> None:
            await model.async_client.chat.completions.create(model="any", messages=[{"role": "user", "content": "a"}])

        asyncio.run(chat())
        asyncio.run(chat())
        return WorkflowOutput(reward=1.0)

    explorer = LearningExplorer()
    result = await tuned(explorer, twice, train_dataset=dataset(folder / "d", questions(2)))
    assert (result.steps[0]["dropped"], len(explorer.chats)) == (0, 8)


def text(body: str) -> Callable[[Request], Response]:
    return lambda request: PlainTextResponse(body)


_MODELS = Route("/v1/models", lambda request: JSONResponse({"data": [{"id": "m"}]}))


@pytest.mark.parametrize(
    ("routes", "said"),
    [
        ([], "/v1/models: 404"),
        ([Route("/v1/models", text("<html>Welcome</html>"))], "is no JSON: 200 <html>Welcome"),
        ([_MODELS], "/metrics: 404"),  # any server of OpenAI's HTTP
        ([_MODELS, Route("/metrics", text("# HELP vllm:requests"))], "/metrics is no JSON: 200 # HELP"),
    ],
)
async def test_an_address_of_something_else_is_told(folder: Path, routes: list[Route], said: str) -> None:
    data = dataset(folder / "d", questions(1))
    async with serving(Starlette(routes=routes)) as url:
        with pytest.raises(TunerError, match=f"explorer_url: expected that of an Explorer .*{said}"):
            await tuned(LearningExplorer(), explorer_url=url, train_dataset=data)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"train_dataset": "my_dataset"},
            "train_dataset: expected a slipstream_client.DatasetConfig, found b.*str",
        ),
        (
            {"eval_dataset": {"path": "d"}},
            "eval_dataset: expected a slipstream_client.DatasetConfig",
        ),
        ({"model": "Qwen/Qwen3-0.6B"}, "model: expected a slipstream_client.TunerModelConfig"),
        (
            {"auxiliary_models": {"judge": "gpt"}},
            r"auxiliary_models\['judge'\]: expected a slipstream_client.T",
        ),
        ({"auxiliary_models": ["gpt"]}, "auxiliary_models: expected a mapping of names, found builtins.list"),
        ({"explorer_url": "localhost:8010"}, "explorer_url: expected an address such as http://host:8010"),
        ({"explorer_url": "trinity:secret@host:8010"}, "explorer_url: expected an address such as http://host:8010$"),
        ({"explorer_url": "http://host:99999"}, "explorer_url: expected an address such as http://host:8010"),
        ({"explorer_url": "http://host:port"}, "explorer_url: Invalid port"),
        ({"config_path": "c.yaml"}, "config_path: expected a mapping at model, found 'Qwen'"),
    ],
)
async def test_an_argument_of_another_kind_is_named(folder: Path, fields: dict[str, Any], said: str) -> None:
    (folder / "c.yaml").write_text("model: Qwen\n")
    with pytest.raises(ValueError, match=said):
        await tuned(LearningExplorer(), **{"train_dataset": dataset(folder / "d", questions(1)), **fields})


async def test_a_folder_that_cannot_be_made_is_told(folder: Path) -> None:
    (folder / "checkpoints").write_text("in the way")
    with pytest.raises(TunerError, match=r"the experiment's folder cannot be written to, .*checkpoint_root_dir"):
        await tuned(LearningExplorer(), train_dataset=dataset(folder / "d", questions(1)))


def test_a_model_that_is_nowhere_is_told_before_anything_starts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipstream_client.config._configured", None)
    monkeypatch.delenv("SLIPSTREAM_URL", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    data = dataset(folder / "d", questions(1))
    for path in ("./no/such/directory", "nobody/no-such-model"):
        model = TunerModelConfig(model_path=path, max_model_len=64)
        with pytest.raises(ValueError, match=rf"model\.model_path: no directory, and no model .*Hub: '{path}'"):
            tune(workflow_func=one_call, train_dataset=data, model=model)
    assert not (folder / "checkpoints").exists()


def test_a_model_of_the_hub_is_found_by_its_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from slipstream_client.tuner.local import model_directory

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder))
    commit = "0" * 40
    snapshot = folder / "models--somebody--tiny" / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    (folder / "models--somebody--tiny" / "refs").mkdir()
    (folder / "models--somebody--tiny" / "refs" / "main").write_text(commit)
    assert model_directory(TunerModelConfig(model_path="somebody/tiny", max_model_len=64)) == snapshot


@pytest.mark.slow
async def test_an_interrupt_ends_it_in_a_notebook_too(folder: Path) -> None:
    """There `tune` is called in a loop that runs; the interrupt comes while it waits."""
    dataset(folder / "d", questions(8))
    explorer = LearningExplorer()
    explorer.hold.clear()
    path = os.pathsep.join(map(str, (_HERE, _HERE.parent / "support", *filter(None, sys.path))))
    async with serving(explorer.app()) as url:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(_HERE / "tuning_script.py"),
            "1",
            url,
            "notebook",
            env={**os.environ, "PYTHONPATH": path},
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            await until(lambda: len(explorer.chats) == 4, 60)
            process.send_signal(signal.SIGINT)
            assert await asyncio.wait_for(process.wait(), 10) == -signal.SIGINT
        finally:
            explorer.hold.set()
            if process.returncode is None:
                process.kill()
                await process.wait()


def test_an_error_says_nothing_of_how_it_was_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A traceback of two parts is read from its wrong end."""
    monkeypatch.setattr("slipstream_client.tuner.explorer._FIRST_RETRY_FOR", 0.1)
    with pytest.raises(TunerError) as caught:
        tune(
            workflow_func=one_call,
            train_dataset=dataset(folder / "d", questions(1)),
            algorithm=AlgorithmConfig(group_size=2),
            explorer_url=f"http://trinity:key@127.0.0.1:{_closed_port()}",
        )
    assert caught.value.__context__ is None
    assert "key" not in str(caught.value)


def _closed_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port
