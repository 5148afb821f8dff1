from __future__ import annotations

from pathlib import Path

import pytest

from slipstream.datasets.row import Kind
from slipstream.embedded.config import load_config
from slipstream.errors import ConfigError

SMALLEST = """
mode: serve
checkpoint_root_dir: /checkpoints
model: {model_path: /model, max_model_len: 1024}
"""


def file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "explorer.yaml"
    path.write_text(text)
    return path


def test_the_files_of_the_project_agree_with_each_other(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODEL_PATH", "/models/smollm2")
    monkeypatch.setenv("CHECKPOINT_ROOT_DIR", "/checkpoints")

    explorer = load_config(pytestconfig.rootpath / "explorer.yaml", "serve")
    trainer = load_config(
        pytestconfig.rootpath / "trainer.yaml", "train", [pytestconfig.rootpath / "overlays" / "small-cpu.yaml"]
    )

    assert explorer.job_dir == trainer.job_dir == Path("/checkpoints/slipstream/policy")
    assert explorer.database_url == trainer.database_url
    assert explorer.model.model_path == trainer.model.model_path == "/models/smollm2"
    assert explorer.model.temperature == trainer.model.temperature
    assert explorer.algorithm.algorithm_type == trainer.algorithm.algorithm_type == "grpo"


def test_variables_with_and_without_a_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORT", "9000")
    path = file(
        tmp_path,
        SMALLEST + "explorer: {proxy_port: '${oc.env:PORT}', listen_address: '${oc.env:NOT_SET_ANYWHERE,127.0.0.2}'}",
    )

    explorer = load_config(path, "serve").explorer

    assert (explorer.proxy_port, explorer.listen_address) == (9000, "127.0.0.2")


def test_a_trinity_file_with_fields_of_its_own_is_read(tmp_path: Path) -> None:
    path = file(
        tmp_path,
        """
mode: serve
project: test
group: a
name: test
checkpoint_root_dir: /checkpoints
model: {model_path: /model, max_model_len: 8192, max_response_tokens: 2048, temperature: 0.7}
algorithm: {algorithm_type: ppo}
cluster: {node_num: 1, gpu_per_node: 4}
explorer:
  rollout_model: {engine_num: 2, enable_history: true, tool_call_parser: hermes, dtype: bfloat16}
buffer:
  train_batch_size: 16
  trainer_input: {experience_buffer: {name: exp_buffer, storage_type: sql, path: "sqlite:////data/other.db"}}
""",
    )

    config = load_config(path, "serve")

    assert config.job_dir == Path("/checkpoints/test/a/test")
    assert config.database_url == "sqlite:////data/other.db"
    assert config.buffer.train_batch_size == 16


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("explorer: {proxy_port: many}", "explorer.proxy_port: Input should be a valid integer"),
        ("explorer: {proxy_port: 70000}", "explorer.proxy_port: Input should be less than or equal to 65535"),
        ("explorer: {proxy_port: true}", "explorer.proxy_port: Input should be a number, not a boolean, found True"),
        ("explorer: {rollout_model: {dtype: int4}}", "explorer.rollout_model.dtype: Input should be 'auto', 'bfloat"),
        ("explorer: {rollout_model: {tool_call_parser: pythonic}}", "explorer.rollout_model.tool_call_parser: "),
        ("explorer: {service_status_check_interval: 0}", "explorer.service_status_check_interval: "),
        (
            "algorithm: {algorithm_type: topr}",
            "algorithm.algorithm_type: Input should be 'grpo', 'multi_step_grpo', 'ppo', 'mix', 'sft', 'dpo', 'kto' "
            "or 'sdpo', found",
        ),
        ("algorithm: {optimizer: {lr: .nan}}", "algorithm.optimizer.lr: Input should be a finite number, found nan"),
        ("algorithm: {policy_loss_fn_args: {clip_range: 0}}", "algorithm.policy_loss_fn_args.clip_range: "),
        ("buffer: {train_batch_size: 0}", "buffer.train_batch_size: Input should be greater than or equal to 1"),
        ("buffer: {trainer_input: {experience_buffer: {storage_type: queue}}}", "experience_buffer.storage_type: "),
        ("buffer: {trainer_input: {experience_buffer: {path: /data/x.db}}}", "Input should be a database URL"),
        ("buffer: {trainer_input: {experience_buffer: {name: 'a; drop'}}}", "experience_buffer.name: "),
        (
            "monitor: {monitor_type: swanlab}",
            "monitor.monitor_type: Input should be 'tensorboard', 'wandb' or 'mlflow'",
        ),
        ("monitor: {monitor_args: {mode: later}}", "monitor.monitor_args.mode: Input should be 'online', 'offline'"),
        (
            "monitor: {monitor_args: {api_key: 1234}}",
            "monitor_args.api_key: Input should be a valid string, found some",
        ),
        ("project: ''", "project: String should have at least 1 character"),
    ],
)
def test_a_bad_value_is_refused_with_its_key(tmp_path: Path, lines: str, message: str) -> None:
    path = file(tmp_path, SMALLEST + lines)

    with pytest.raises(ConfigError) as refused:
        load_config(path, "serve")

    assert str(path) in str(refused.value)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("{max_model_len: 8}", "model.model_path: Field required, found nothing"),
        ("{model_path: /m}", "model: Give max_model_len, or both max_prompt_tokens and max_response_tokens"),
        ("{model_path: /m, max_model_len: 8, max_response_tokens: 8}", "max_response_tokens (8) should be less than"),
        ("{model_path: /m, max_model_len: 8, temperature: -1}", "model.temperature: "),
        ("{model_path: '${oc.env:NOT_SET_ANYWHERE}', max_model_len: 8}", "NOT_SET_ANYWHERE"),
    ],
)
def test_a_model_that_cannot_be_served_is_refused(tmp_path: Path, model: str, message: str) -> None:
    path = file(tmp_path, f"mode: serve\ncheckpoint_root_dir: /c\nmodel: {model}")

    with pytest.raises(ConfigError) as refused:
        load_config(path, "serve")

    assert message in str(refused.value)


def test_several_problems_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(file(tmp_path, "mode: serve\nmodel: {max_model_len: 0}"), "serve")

    assert len(refused.value.problems) == 3  # checkpoint_root_dir, model_path, max_model_len


def test_the_file_of_the_other_service_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="mode: expected 'train', found 'serve'"):
        load_config(file(tmp_path, SMALLEST), "train")


@pytest.mark.parametrize("text", ["- a list", "mode: [unclosed", "just words"])
def test_what_is_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"explorer\.yaml"):
        load_config(file(tmp_path, text), "serve")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.yaml: cannot be read"):
        load_config(tmp_path / "absent.yaml", "serve")


@pytest.mark.parametrize(
    ("algorithm", "key"),
    [
        ("{kl_loss_fn: k2}", "kl_loss_fn"),
        ("{kl_loss_fn: k3, kl_loss_fn_args: {kl_coef: 0.01}}", "kl_loss_fn"),
        ("{kl_penalty_fn: k1}", "kl_penalty_fn"),
    ],
)
def test_a_kl_term_is_refused_by_name(tmp_path: Path, algorithm: str, key: str) -> None:
    with pytest.raises(ConfigError, match=rf"algorithm: {key}: the embedded engine has no reference model"):
        load_config(file(tmp_path, SMALLEST + f"algorithm: {algorithm}"), "serve")


@pytest.mark.parametrize("algorithm", ["{kl_loss_fn: none}", "{kl_loss_fn: k2, kl_loss_fn_args: {kl_coef: 0}}"])
def test_a_kl_term_that_is_off_is_accepted(tmp_path: Path, algorithm: str) -> None:
    load_config(file(tmp_path, SMALLEST + f"algorithm: {algorithm}"), "serve")


def test_keys_that_would_change_learning_are_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = SMALLEST + "algorithm: {entropy_loss_fn: default, tis: {on: true}}\ncluster: {node_num: 1}"
    load_config(file(tmp_path, text), "serve")
    said = capsys.readouterr()
    line = next(line for line in (said.out + said.err).splitlines() if "keys without effect" in line)
    assert "algorithm.entropy_loss_fn" in line
    assert "algorithm.tis" in line
    assert "cluster" not in line


def test_the_overlays_of_data_sets_are_read_over_the_trainer_s_file(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODEL_PATH", "/models/smollm2")
    monkeypatch.setenv("CHECKPOINT_ROOT_DIR", "/checkpoints")
    root = pytestconfig.rootpath
    for kind, name in ((Kind.SFT, "sft"), (Kind.PREFERENCE, "dpo"), (Kind.KTO, "kto")):
        algorithm = load_config(root / "trainer.yaml", "train", [root / "overlays" / f"{name}.yaml"]).algorithm

        assert algorithm.on_dataset(kind) == name
        assert (algorithm.optimizer.schedule(100), algorithm.optimizer.warmup_steps(100)) == ("cosine", 10)
        with pytest.raises(
            ConfigError, match=rf"expected grpo, multi_step_grpo, ppo or mix.*found '{name}'.*slipstream train"
        ):
            _ = algorithm.online
    online = load_config(root / "trainer.yaml", "train", [root / "overlays" / "small-cpu.yaml"]).algorithm
    assert online.online == "grpo"
    with pytest.raises(
        ConfigError, match=r"expected 'sft' for a data set of kind sft, found 'grpo'; overlays/sft\.yaml"
    ):
        online.on_dataset(Kind.SFT)


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        ("{reference_free: true}", "reference_free: expected false: TRL"),
        ("{loss_type: hinge, label_smoothing: 0.1}", "label_smoothing: expected 0 with loss_type hinge"),
        ("{loss_type: exo_pair}", "policy_loss_fn_args.loss_type"),
        ("{beta: 0}", "policy_loss_fn_args.beta"),
    ],
)
def test_a_loss_that_is_not_built_is_refused_in_words(tmp_path: Path, loss: str, words: str) -> None:
    text = SMALLEST + f"algorithm: {{algorithm_type: dpo, policy_loss_fn_args: {loss}}}"
    with pytest.raises(ConfigError, match=words):
        load_config(file(tmp_path, text), "serve")
