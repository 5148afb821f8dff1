"""Mistakes that people make in the three files, each with the one code by which the doctor must name it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slipstream.doctor.files import Files

ROOT = Path(__file__).parents[2]

Plant = Callable[..., Files]
"""The fixture `plant`."""


@dataclass(frozen=True)
class Mistake:
    """What is laid over the shipped files: one of Trinity's or both, and variables of the sidecar."""

    code: str = ""
    both: dict[str, Any] = field(default_factory=dict)
    explorer: dict[str, Any] = field(default_factory=dict)
    trainer: dict[str, Any] = field(default_factory=dict)
    sidecar: dict[str, str] = field(default_factory=dict)


def buffer(**fields: Any) -> dict[str, Any]:
    return {"buffer": {"trainer_input": {"experience_buffer": fields}}}


def algorithm(name: str, **fields: Any) -> dict[str, Any]:
    return {"algorithm": {"algorithm_type": name, **fields}}


def engine(**fields: Any) -> dict[str, Any]:
    return {"explorer": {"rollout_model": fields}}


def sidecar(section: str, **keys: Any) -> dict[str, str]:
    return {f"SLIPSTREAM_{section}__{key}".upper(): str(value) for key, value in keys.items()}


def replays(url: str, **keys: Any) -> dict[str, str]:
    """The mode of an endpoint, with the keys of `runs.webhook`."""
    return sidecar("runs", mode="webhook", webhook=json.dumps({"url": url, "secret": "of some length", **keys}))


def scored(**keys: Any) -> dict[str, str]:
    """A webhook that scores."""
    return sidecar("rewards", calculators=json.dumps([{"webhook": keys}]))


PUBLIC: dict[str, Any] = {"url": "https://agents.example/replay", "base_url": "https://sidecar.example"}
HASH = "sha256:" + "0" * 64

MISTAKES = [
    Mistake("files.wrong_type", explorer={"explorer": {"proxy_port": "http"}}),
    Mistake("files.wrong_type", trainer={"monitor": None, "synchronizer": "checkpoint"}),
    Mistake("files.wrong_type", trainer={"trainer": {"save_interval": None}}),  # `save_interval:` and nothing after it
    Mistake("files.wrong_mode", explorer={"mode": "both"}),
    Mistake("files.wrong_mode", trainer={"mode": "serve"}),
    Mistake("files.job_differs", trainer={"project": "elsewhere"}),
    Mistake("files.job_differs", trainer={"group": "night"}),
    Mistake("files.job_differs", trainer={"name": "other"}),
    Mistake("files.job_differs", trainer={"checkpoint_root_dir": "/data/other"}),
    Mistake("files.model_differs", trainer={"model": {"model_path": "/models/other"}}),
    Mistake("files.model_differs", trainer={"model": {"temperature": 0.7}}),
    Mistake("files.model_differs", trainer={"model": {"max_model_len": 4096}}),
    Mistake("files.model_differs", trainer={"model": {"max_response_tokens": 512}}),
    Mistake("files.buffer_differs", trainer=buffer(name="experiences")),
    Mistake("files.buffer_differs", trainer=buffer(path="sqlite:////data/buffer.db")),
    Mistake("files.algorithm_differs", trainer=algorithm("gspo")),
    Mistake("files.algorithm_of_the_sidecar_differs", sidecar=sidecar("explorer", algorithm_type="ppo")),
    Mistake("files.batch_sizes_differ", explorer={"buffer": {"train_batch_size": 16}}),
    Mistake("files.batch_sizes_differ", sidecar=sidecar("explorer", train_batch_size=16)),
    Mistake("files.checkpoint_root_not_absolute", both={"checkpoint_root_dir": "runs"}),
    Mistake("files.checkpoint_root_not_absolute", both={"checkpoint_root_dir": ""}),
    Mistake("files.experiment_renamed", trainer={"continue_from_checkpoint": False}),
    Mistake("files.no_model_path", both={"model": {"model_path": ""}}),
    Mistake("files.buffer_not_sql", both=buffer(storage_type="queue")),
    Mistake("files.buffer_not_sql", both=buffer(storage_type="SQL")),
    Mistake("files.buffer_path_wrong", both=buffer(path="sqlite:///buffer.db")),
    Mistake("files.buffer_path_wrong", both=buffer(path="/data/buffer.db")),
    Mistake("files.buffer_path_wrong", both=buffer(path="")),  # BUFFER_URL is set, to nothing
    Mistake("files.buffer_path_wrong", both=buffer(path="postgresql://me:hunter2@db:port/x")),
    Mistake("files.buffer_path_wrong", both=buffer(path="postgres://me:hunter2@db/x")),
    Mistake("files.buffer_path_wrong", both=buffer(path="postgresql+psycopg2://me:hunter2@db/x")),
    Mistake("files.buffer_path_wrong", both=buffer(path="postgresql://me:hunter2@db/x?sslmode=require")),
    Mistake("files.buffer_path_wrong", explorer={"explorer": {"db_url": "postgres://me:hunter2@db/x"}}),
    Mistake("files.sqlite_on_several_hosts", trainer={"cluster": {"node_num": 2}}),
    Mistake("files.explorer_never_reloads", explorer={"explorer": {"min_running_model_num": 2}}),
    Mistake("files.explorer_never_reloads", explorer=engine(engine_num=1)),
    Mistake("files.adapters_never_answer", explorer={"model": {"lora_configs": [{"lora_rank": 16}]}}),
    Mistake("files.adapters_never_answer", trainer={"model": {"lora_configs": [{"lora_rank": 16}]}}),
    Mistake("files.chats_fail_in_reload", explorer={"explorer": {"min_running_model_num": 0}}),
    Mistake("files.too_few_gpus", explorer=engine(tensor_parallel_size=4)),
    Mistake("files.too_few_gpus", explorer={"cluster": {"gpu_per_node": 2}}),
    Mistake(
        "files.too_few_gpus",  # of two and a half servers
        both=buffer(path="postgresql://db/x"),
        explorer={"cluster": {"node_num": 6}, **engine(tensor_parallel_size=10)},
    ),
    Mistake(
        "files.too_few_gpus",
        both=buffer(path="postgresql://db/x"),
        explorer={"cluster": {"node_num": 4}, **engine(tensor_parallel_size=4, data_parallel_size=2)},
    ),
    Mistake("files.gpus_not_given", trainer={"cluster": {"gpu_per_node": 0}}),
    Mistake("files.openai_api_off", explorer=engine(enable_openai_api=False)),
    Mistake("files.history_off", explorer=engine(enable_history=False)),
    Mistake("files.no_tool_call_parser", explorer=engine(tool_call_parser=None)),
    Mistake("files.tools_refused", explorer=engine(enable_auto_tool_choice=False)),
    Mistake("files.explorer_listens_everywhere", explorer={"explorer": {"listen_address": "0.0.0.0"}}),
    Mistake("files.explorer_listens_everywhere", explorer={"explorer": {"listen_address": ""}}),
    Mistake(
        "files.explorer_listens_in_public",
        explorer={"explorer": {"listen_address": "8.8.4.4"}},
        sidecar=sidecar("explorer", base_url="http://8.8.4.4:8010"),
    ),
    Mistake("files.slow_to_follow", explorer={"explorer": {"service_status_check_interval": 60}}),
    Mistake("files.temperature_zero", both={"model": {"temperature": 0}}),
    Mistake("files.temperature_not_one", both={"model": {"temperature": 0.7}}),
    Mistake("files.no_max_model_len", both={"model": {"max_model_len": None}}),
    Mistake("files.no_room_for_the_prompt", both={"model": {"max_response_tokens": 8192}}),
    Mistake("files.algorithm_unknown", both=algorithm("grop")),
    Mistake("files.algorithm_unknown", both=algorithm("GRPO")),
    Mistake("files.algorithm_refused", both=algorithm("sft")),
    Mistake("files.algorithm_refused", both=algorithm("raft")),
    Mistake("files.algorithm_without_teacher", both=algorithm("on_policy_distill")),
    Mistake("files.algorithm_loses_experiences", both=algorithm("rec")),
    Mistake("files.algorithm_untried", both=algorithm("mix")),
    Mistake("files.group_of_one", sidecar=sidecar("runs", repeat_time=1)),
    Mistake("files.group_of_one", sidecar=sidecar("facade", group_size=1)),
    Mistake("files.batch_splits_groups", sidecar=sidecar("runs", repeat_time=6)),
    Mistake("files.commit_leaves_leftovers", sidecar=sidecar("commit", max_pending=50)),
    Mistake("files.commit_leaves_leftovers", sidecar=sidecar("commit", min_experiences=40)),
    Mistake("files.training_ends_on_a_quiet_night", trainer=buffer(max_read_timeout=1800)),
    Mistake("files.training_ends", trainer={"trainer": {"total_steps": 100}}),
    Mistake("files.no_full_checkpoint", trainer={"trainer": {"save_interval": 0}}),
    Mistake("files.checkpoints_fill_the_disk", trainer={"trainer": {"max_checkpoints_to_keep": 0}}),
    Mistake("files.no_model_directory", trainer={"trainer": {"save_hf_checkpoint": "never"}}),
    Mistake("files.experiences_kept_twice", explorer={"data_processor": {"experience_pipeline": {"save_input": True}}}),
    Mistake("files.no_train_batch_size", trainer={"buffer": {"train_batch_size": 0}}),
    Mistake(
        "files.batch_not_divisible_by_gpus",
        both={"buffer": {"train_batch_size": 30}},
        sidecar=sidecar("runs", repeat_time=5),
    ),
    Mistake("files.batch_not_divisible_by_gpus", trainer={"trainer": {"ulysses_sequence_parallel_size": 8}}),
    Mistake("files.sequence_fits_no_gpu", trainer={"trainer": {"max_token_len_per_gpu": 4096}}),
    Mistake("files.kl_loss_missing", trainer={"algorithm": {"kl_loss_fn": "none"}}),
    Mistake("files.sync_method_not_checkpoint", trainer={"synchronizer": {"sync_method": "nccl"}}),
    Mistake("files.explorer_address_wrong", sidecar=sidecar("explorer", base_url="http://127.0.0.1:8011")),
    Mistake("files.explorer_address_wrong", sidecar=sidecar("explorer", base_url="http://127.0.0.1:8010/v1")),
    Mistake("files.explorer_address_wrong", sidecar=sidecar("explorer", base_url="http://explorer:8010")),
    Mistake("files.explorer_address_wrong", sidecar=sidecar("explorer", base_url="https://127.0.0.1:8010")),
    Mistake("files.explorer_address_wrong", sidecar=sidecar("explorer", base_url="http://[::1]:8010")),
    Mistake(
        "files.explorer_address_wrong",
        sidecar=sidecar("explorer", base_url="http://127.0.0.1:8010/v1/chat/completions"),
    ),
    Mistake("files.explorer_address_wrong", explorer={"explorer": {"listen_address": "::1"}}),
    Mistake("files.explorer_address_wrong", explorer={"explorer": {"listen_address": "10.0.0.2"}}),
    Mistake(
        "files.explorer_port_differs",
        explorer={"explorer": {"listen_address": "10.0.0.2"}},
        sidecar=sidecar("explorer", base_url="http://explorer:80"),
    ),
    Mistake("files.policy_name_wrong", sidecar=sidecar("explorer", model="policy")),
    Mistake("files.history_differs", sidecar=sidecar("explorer", history_url="sqlite+aiosqlite:////data/history.db")),
    Mistake(
        "files.history_differs",
        explorer={"explorer": {"db_url": "postgresql://me:hunter2@db/trinity"}},
        sidecar=sidecar("explorer", history_url="postgresql+asyncpg://me:hunter2@db/slipstream"),
    ),
    Mistake("files.production_is_the_sidecar", sidecar=sidecar("production", base_url="http://localhost:8100/v1")),
    Mistake("files.production_is_the_explorer", sidecar=sidecar("production", base_url="http://127.0.0.1:8010/v1")),
    Mistake("files.production_is_the_explorer", sidecar=sidecar("production", base_url="http://localhost:8010/v1/")),
    Mistake("files.too_many_concurrent_runs", sidecar=sidecar("runs", concurrency=200)),
    Mistake("files.explorer_gives_up_first", sidecar=sidecar("runs", timeout="20m")),
    Mistake(
        "files.open_to_everybody", sidecar={"SLIPSTREAM_LISTEN": "0.0.0.0:8100", "SLIPSTREAM_ACCESS__INSECURE": "true"}
    ),
    Mistake("files.retention_too_short", sidecar=sidecar("capture", retention="5m")),
    Mistake(
        "files.retention_too_short",
        sidecar=sidecar("capture", retention="5d") | sidecar("commit", schedule="0 3 * * 0"),
    ),
    Mistake("files.retention_too_short", sidecar=replays(**PUBLIC) | sidecar("capture", retention="10m")),
    Mistake(
        "files.no_key_for_agents", sidecar=sidecar("access", keys=f"[{{name: x, roles: [metrics], hash: {HASH}}}]")
    ),
    Mistake("files.trusts_everybody", sidecar=sidecar("access", trusted_proxies="[10.0.0.0/8, 0.0.0.0/0]")),
    Mistake("files.production_path_missing", sidecar=sidecar("production", base_url="https://api.openai.com/")),
    Mistake("files.runs_queue_too_short", sidecar=sidecar("runs", queue=7)),
    Mistake("files.store_too_small", sidecar=sidecar("limits", store_bytes="63MiB")),
    Mistake("files.store_in_memory", sidecar=sidecar("store", url="sqlite+aiosqlite://")),
    Mistake("files.body_beyond_queue", sidecar=sidecar("capture", max_body="65MiB")),
    Mistake("files.nothing_redacted", sidecar=sidecar("capture", redact="[]")),
    Mistake("files.webhook_refused", sidecar=replays("http://127.0.0.1:9000/replay")),
    Mistake(
        "files.webhook_refused", sidecar=replays("http://localhost:9000/replay", allow_private=["agents.internal"])
    ),
    Mistake("files.webhook_refused", sidecar=replays(**{**PUBLIC, "url": "http://[fd00::7]/replay"})),
    Mistake("files.webhook_refused", sidecar=scored(url="http://169.254.169.254/score")),
    Mistake("files.webhook_refused", sidecar=scored(url="http://10.0.0.9/score", allow_private=["10.1.0.0/16"])),
    Mistake("files.webhook_told_loopback", sidecar=replays("https://agents.example/replay")),
    Mistake(
        "files.webhook_told_loopback",
        sidecar=replays("https://agents.example/replay", base_url="http://localhost:8100"),
    ),
    Mistake("files.webhook_unused", sidecar=replays(**PUBLIC) | {"SLIPSTREAM_RUNS__MODE": "shadow"}),
    Mistake("files.nothing_selected", sidecar={"SLIPSTREAM_SELECTION": "{sampling: {rate: 0}}"}),
    Mistake("files.nothing_selected", sidecar=sidecar("capture", rate=0)),
    Mistake("files.nothing_scored", sidecar=sidecar("rewards", calculators="[]")),
    Mistake("files.rewards_large", sidecar=sidecar("rewards", clip="[0, 100]")),
]
