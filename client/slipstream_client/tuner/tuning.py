"""`tune`: AgentScope's, over any Explorer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anyio.from_thread import start_blocking_portal

from slipstream_client.tuner.board import Board
from slipstream_client.tuner.config import AlgorithmConfig, TunerModelConfig
from slipstream_client.tuner.dataset import DatasetConfig
from slipstream_client.tuner.endpoint import defaults, endpoint, remote
from slipstream_client.tuner.explorer import Explorer
from slipstream_client.tuner.functions import (
    JudgeType,
    WorkflowType,
    check_judge_function,
    check_workflow_function,
    kind_of,
)
from slipstream_client.tuner.gateway import Gateway, Upstream
from slipstream_client.tuner.loop import Loop, Schedule
from slipstream_client.tuner.plan import plan
from slipstream_client.tuner.progress import Progress
from slipstream_client.tuner.rollouts import Rollouts
from slipstream_client.tuner.trinity import wanted_yaml, write_trinity_config


@dataclass(frozen=True)
class TuneResult:
    """Result of a tuning.

    Attributes:
        folder: of the experiment, with its checkpoints where the engine was a local one.
        steps: of each step its number, the version its runs were by, mean reward and metrics, counts and seconds.
        evaluations: the same of each evaluation; `step` says after which step it was made.
    """

    folder: Path
    steps: tuple[Mapping[str, Any], ...]
    evaluations: tuple[Mapping[str, Any], ...]


def tune(
    *,
    workflow_func: WorkflowType,
    judge_func: JudgeType | None = None,
    train_dataset: DatasetConfig | None = None,
    eval_dataset: DatasetConfig | None = None,
    model: TunerModelConfig | None = None,
    auxiliary_models: dict[str, TunerModelConfig] | None = None,
    algorithm: AlgorithmConfig | None = None,
    project_name: str | None = None,
    experiment_name: str | None = None,
    monitor_type: str | None = None,
    config_path: str | None = None,
    explorer_url: str | None = None,
    concurrency: int = 16,
    run_timeout: float = 3600.0,
    sync_timeout: float = 1800.0,
    seed: int | None = None,
) -> TuneResult:
    """Trains the policy model on a dataset, by what a workflow's runs on it are worth. docs/tuner.md tells more.

    Up to `config_path` the arguments are those of AgentScope's `tune`.

    Args:
        workflow_func: does a task with the model that it is given, as `WorkflowType` says.
        judge_func: gives the reward. Without it `WorkflowOutput.reward` is.
        train_dataset: the tasks; needed, here or in the file of `config_path`.
        eval_dataset: tasks to measure on, before the first step, every `eval_interval_steps`, and after the last.
        model: what is tuned, and how it is asked. A remote engine has its own; then only top_p, max_tokens and
            enable_thinking count.
        auxiliary_models: models that are not tuned, by name.
        algorithm: how it is tuned. A remote engine has its own; then group_size, batch_size and eval_interval_steps
            count, and algorithm_type tells whether runs are compared.
        project_name: a folder below `checkpoints`. By default AgentScope.
        experiment_name: a folder below that. By default `Experiment-<time>`. One that is there is gone on with.
        monitor_type: tensorboard.
        config_path: a YAML file of Trinity-RFT's; arguments that are given count instead of its fields.
        explorer_url: an Explorer (`http://host:8010`) or a sidecar's facade (`http://sidecar:8100/explorer`). By
            default the facade of the sidecar that `configure` or SLIPSTREAM_URL named, or else an engine that is
            started here.
        concurrency: most runs at once.
        run_timeout: seconds that a run may take; then it is dropped.
        sync_timeout: seconds that the next version is waited for after a commit.
        seed: of the order of the tasks, and of the local engine's sampling. None: in the dataset's order.

    Raises:
        ValueError: an argument is missing or makes no sense; it is named.
        TunerError: it cannot be gone on with. What was committed is kept: call it again with the same
            `experiment_name`.
    """
    check_workflow_function(workflow_func)
    if judge_func is not None:
        check_judge_function(judge_func)
    _check_kinds(train_dataset, eval_dataset, model, auxiliary_models, algorithm)
    for name, value in (("concurrency", concurrency), ("run_timeout", run_timeout), ("sync_timeout", sync_timeout)):
        if not value > 0:
            raise ValueError(f"{name}: expected above 0, found {value}")
    if (yaml := wanted_yaml()) is not None:
        write_trinity_config(
            yaml,
            workflow_func=workflow_func,
            judge_func=judge_func,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            model=model,
            auxiliary_models=auxiliary_models,
            algorithm=algorithm,
            project_name=project_name,
            experiment_name=experiment_name,
            monitor_type=monitor_type,
            config_path=config_path,
            run_timeout=run_timeout,
            seed=seed,
        )
        raise SystemExit(0)  # the script goes no further: what it would say of the tuning has not happened
    planned = plan(
        train_dataset=train_dataset,
        eval_dataset=eval_dataset,
        model=model,
        algorithm=algorithm,
        project_name=project_name,
        experiment_name=experiment_name,
        monitor_type=monitor_type,
        config_path=config_path,
    )
    auxiliary = auxiliary_models or {}
    url = remote(explorer_url, planned, auxiliary)
    with ExitStack() as stack:
        progress = stack.enter_context(closing(Progress(planned.folder, planned.configuration(seed))))
        stack.enter_context(_logged(planned.folder / "tuner.log"))
        engine = stack.enter_context(endpoint(url, planned, auxiliary, seed, progress.lock))
        board = stack.enter_context(closing(Board(planned.folder / "monitor" / "tensorboard" / "tuner")))
        gateway = stack.enter_context(Gateway(run_timeout))
        schedule = Schedule(
            steps=planned.steps,
            batch_size=planned.algorithm.batch_size,
            group_size=planned.algorithm.group_size,
            least=planned.least,
            evaluate_every=planned.algorithm.eval_interval_steps,
            seed=seed,
            sync_timeout=sync_timeout,
        )

        async def work() -> None:
            async with Explorer(engine.url, engine.headers) as explorer:
                policy = Upstream(f"{engine.url}/v1", await explorer.model(), defaults(planned.model), explorer.headers)
                rollouts = Rollouts(
                    workflow_func, judge_func, gateway, policy, engine.auxiliary, concurrency, run_timeout
                )
                await Loop(
                    schedule=schedule,
                    train=planned.train,
                    total=planned.total,
                    evaluation=planned.evaluation,
                    rollouts=rollouts,
                    explorer=explorer,
                    progress=progress,
                    board=board,
                    check=engine.check,
                ).run()

        _run(work)
        return TuneResult(planned.folder, tuple(progress.steps), tuple(progress.evaluations))


def _check_kinds(train_dataset: Any, eval_dataset: Any, model: Any, auxiliary_models: Any, algorithm: Any) -> None:
    """A name in place of a configuration, or AgentScope's own, of which the import was not changed."""
    if auxiliary_models is not None and not isinstance(auxiliary_models, Mapping):
        raise ValueError(f"auxiliary_models: expected a mapping of names, found {kind_of(auxiliary_models)}")
    for name, value, kind in (
        ("train_dataset", train_dataset, DatasetConfig),
        ("eval_dataset", eval_dataset, DatasetConfig),
        ("model", model, TunerModelConfig),
        *((f"auxiliary_models[{name!r}]", each, TunerModelConfig) for name, each in (auxiliary_models or {}).items()),
        ("algorithm", algorithm, AlgorithmConfig),
    ):
        if value is not None and not isinstance(value, kind):
            raise ValueError(f"{name}: expected a slipstream_client.{kind.__name__}, found {kind_of(value)}")


def _run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Runs it here, or, where a loop runs already (a notebook), in a thread, which ends at an interrupt here."""
    if not _in_loop():
        asyncio.run(work())
        return
    with start_blocking_portal() as portal:
        portal.call(work)


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@contextmanager
def _logged(path: Path) -> Iterator[None]:
    """Write the log of the tuner and its workflows to the experiment's folder as well."""
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger("slipstream_client.tuner")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(level or logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)
        handler.close()
