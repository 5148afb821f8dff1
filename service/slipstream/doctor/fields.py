"""Trinity-RFT 0.6.0's fields that the doctor looks at, with the defaults that hold where a file does not give them."""

from __future__ import annotations

from typing import Any, NamedTuple


class Field(NamedTuple):
    """A field's type and default; None where a file need not give it and Trinity works it out."""

    kind: type
    default: Any


FIELDS: dict[str, Field] = {
    "mode": Field(str, "both"),
    "project": Field(str, "Trinity-RFT"),
    "group": Field(str, ""),
    "name": Field(str, "rft"),
    "checkpoint_root_dir": Field(str, ""),
    "continue_from_checkpoint": Field(bool, True),
    "model.model_path": Field(str, ""),
    "model.temperature": Field(float, 1.0),
    "model.max_model_len": Field(int, None),
    "model.max_prompt_tokens": Field(int, None),
    "model.max_response_tokens": Field(int, None),
    "algorithm.algorithm_type": Field(str, "ppo"),
    "algorithm.kl_loss_fn": Field(str, None),
    "cluster.node_num": Field(int, 0),
    "cluster.gpu_per_node": Field(int, 0),
    "explorer.listen_address": Field(str, "0.0.0.0"),  # noqa: S104 - Trinity's default, which the doctor warns of
    "explorer.proxy_port": Field(int, 8010),
    "explorer.service_status_check_interval": Field(int, 60),
    "explorer.min_running_model_num": Field(int, 1),
    "explorer.db_url": Field(str, None),
    "explorer.rollout_model.engine_num": Field(int, 1),
    "explorer.rollout_model.tensor_parallel_size": Field(int, 1),
    "explorer.rollout_model.data_parallel_size": Field(int, 1),
    "explorer.rollout_model.pipeline_parallel_size": Field(int, 1),
    "explorer.rollout_model.enable_openai_api": Field(bool, False),
    "explorer.rollout_model.enable_history": Field(bool, False),
    "explorer.rollout_model.enable_auto_tool_choice": Field(bool, False),
    "explorer.rollout_model.tool_call_parser": Field(str, None),
    "buffer.train_batch_size": Field(int, 0),
    "buffer.trainer_input.experience_buffer.name": Field(str, "experience_buffer"),
    "buffer.trainer_input.experience_buffer.storage_type": Field(str, "queue"),
    "buffer.trainer_input.experience_buffer.path": Field(str, None),
    "buffer.trainer_input.experience_buffer.max_read_timeout": Field(float, 1800.0),
    "data_processor.experience_pipeline.save_input": Field(bool, True),
    "trainer.save_interval": Field(int, 0),
    "trainer.total_steps": Field(int, None),
    "trainer.save_hf_checkpoint": Field(str, "last"),
    "trainer.max_checkpoints_to_keep": Field(int, 0),
    "trainer.use_dynamic_bsz": Field(bool, True),
    "trainer.max_token_len_per_gpu": Field(int, None),
    "trainer.ulysses_sequence_parallel_size": Field(int, 1),
    "synchronizer.sync_method": Field(str, "nccl"),
    "synchronizer.sync_timeout": Field(int, 3600),
}

TRUE, FALSE = frozenset({"true", "yes", "y", "on", "1"}), frozenset({"false", "no", "n", "off", "0"})


class WrongType(ValueError):
    """The value is not of the field's type; the message says what was expected."""


def converted(value: Any, kind: type) -> Any:
    """The value as Trinity's loader (OmegaConf) takes it: text such as "8" is a number where one is expected.

    Raises:
        WrongType: it is none of that type.
    """
    try:
        if kind is bool and isinstance(value, bool | int):
            return bool(value)
        if kind is bool and isinstance(value, str) and value.lower() in TRUE | FALSE:
            return value.lower() in TRUE
        if kind is int and (isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))):
            return int(value)
        if kind is float and isinstance(value, str | int | float) and not isinstance(value, bool):
            return float(value)
        if kind is str and isinstance(value, str | int | float | bool):
            return str(value)
    except ValueError:
        pass
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
    raise WrongType(names[kind])
