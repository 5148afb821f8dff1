"""The articles' configurations in the files of this system, and what is refused of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from slipstream.agent_training.configs import AgentSFTConfig, GrpoConfig, RLTrainingConfig, profile
from slipstream.agent_training.jobs import Job, rl_job, sft_job
from slipstream.agent_training.stages import load_stages, planned, run_stages
from slipstream.datasets.config import load_data_file
from slipstream.embedded.config import load_config
from slipstream.errors import ConfigError, SlipstreamError

ROOT = Path(__file__).parents[2]
NO_PPO_EXTRAS = {"algorithm": "ppo", "ppo_config": {"vf_coef": 0, "kl_coef": 0}}


def test_supervised_training_is_a_data_file_and_an_overlay(tmp_path: Path) -> None:
    config = AgentSFTConfig(
        train_data="support:train",
        dev_data="support:dev",
        use_coreset_selection=True,
        use_online_continual=True,
        continual_datasets=("before",),
    )
    path = sft_job(config, output=tmp_path / "out").write(tmp_path / "job")
    data, overlay = load_data_file(path), yaml.safe_load((tmp_path / "job" / "overlay.yaml").read_text())

    assert data.dataset.name == "support"
    assert data.dataset.coreset is not None
    assert (data.dataset.coreset.strategy, data.dataset.coreset.size) == ("hybrid", 8000)
    assert data.dataset.replay is not None
    assert (data.dataset.replay.buffer, data.dataset.replay.ratio) == (4096, 0.3)
    assert data.train.overlays == (tmp_path / "job" / "overlay.yaml",)
    assert overlay["buffer"] == {"train_batch_size": 32, "total_epochs": 3}
    assert overlay["model"]["lora_configs"][0]["lora_rank"] == 64
    assert overlay["algorithm"]["optimizer"] == {
        "lr": 2e-5, "lr_warmup_steps_ratio": 0.1, "lr_scheduler_type": "cosine",
    }  # fmt: skip
    assert overlay["checkpoint_root_dir"] == str(tmp_path / "out")


def test_shares_are_met_whatever_there_is_of_a_task() -> None:
    config = AgentSFTConfig(task_weights={"planning": 0.75, "timing": 0.25})
    job = sft_job(config, labels=[("planning",)] * 10 + [("timing",)] * 90)
    assert job.data is not None
    weights = job.data.dataset.task_weights

    assert weights["planning"] * 10 == pytest.approx(3 * weights["timing"] * 90)
    assert not any("shares" in note for note in job.notes)


@pytest.mark.parametrize(
    ("name", "quantised", "rank", "rows"),
    [("development", "load_in_4bit", 16, 16), ("production", "load_in_8bit", 64, 32)],
)
def test_profiles(name: str, quantised: str, rank: int, rows: int) -> None:
    overlay = sft_job(profile(name)).overlay
    lora = overlay["model"]["lora_configs"][0]

    assert lora[quantised] is True
    assert (lora["lora_rank"], overlay["buffer"]["train_batch_size"]) == (rank, rows)
    assert overlay["model"]["max_response_tokens"] < overlay["model"]["max_model_len"]


def test_pairs_for_dpo_and_the_best_runs_for_rft() -> None:
    dpo, rft = (rl_job(RLTrainingConfig(algorithm=name)).data for name in ("dpo", "rft"))
    assert dpo is not None
    assert dpo.dataset.pairs is not None
    assert dpo.dataset.pairs.from_ == ("runs",)
    assert rft is not None
    assert rft.dataset.sources[0].policy is not None
    assert rft.dataset.sources[0].policy.best_of_group == 1


def test_learning_from_traffic_is_an_overlay_and_a_note(tmp_path: Path) -> None:
    job = rl_job(RLTrainingConfig(algorithm="grpo"))
    assert job.data is None
    assert job.overlay["algorithm"]["repeat_times"] == 4
    assert job.notes == ["group_size: set runs.repeat_time: 4 in sidecar.yaml"]
    with pytest.raises(SlipstreamError, match="learn from the sidecar's traffic"):
        job.run(tmp_path, tmp_path)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"algorithm": "dpo", "dpo_config": {"reference_free": True}},
            "reference_free: expected false.*no DPO without",
        ),
        ({"algorithm": "ppo"}, "vf_coef: expected 0, found 0.5: the policy has no value head"),
        ({"algorithm": "grpo", "grpo_config": {"use_advantage": False}}, "use_advantage: expected true"),
    ],
)
def test_what_there_is_none_of_is_refused_in_words(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        rl_job(RLTrainingConfig.model_validate(fields))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"train_data": "a:dev"}, "train_data: expected NAME:train, found 'a:dev'"),
        ({"dev_data": "other:dev"}, "dev_data: expected agent_sft:dev, found other:dev"),
    ],
)
def test_data_of_another_split_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        sft_job(AgentSFTConfig(**fields))


def test_replay_without_earlier_data_is_refused() -> None:
    with pytest.raises(ValueError, match="continual_datasets: expected names"):
        AgentSFTConfig(use_online_continual=True)


STAGES = """
profile: development
data: support
warmup: {enabled: true, samples: 50, focus: [tool_format_understanding]}
sft: {num_epochs: 2}
rl: {algorithm: dpo}
evaluate: {metrics: [tool_selection_accuracy]}
promote: {version: 3}
"""


def test_stages_go_on_where_they_were_interrupted(tmp_path: Path) -> None:
    (tmp_path / "stages.yaml").write_text(STAGES)
    stages = load_stages(tmp_path / "stages.yaml")
    commands: list[tuple[str, ...]] = []

    def fails_at(command: str | None) -> Any:
        def run(*arguments: str) -> None:
            if arguments[0] == command:
                raise SlipstreamError("away")
            commands.append(arguments)

        return run

    with pytest.raises(SlipstreamError, match="away"):
        run_stages(stages, tmp_path / "out", run=fails_at("evaluate"))
    assert [command[:1] for command in commands] == [("dataset",), ("train",)] * 3
    assert [Path(command[2]).parent.name for command in commands[1::2]] == ["warmup", "sft", "rl"]
    commands.clear()
    run_stages(stages, tmp_path / "out", run=fails_at(None))
    report = str(tmp_path / "out" / "report")
    assert commands == [
        (
            "evaluate",
            "--model",
            "policy",
            "--model",
            "production",
            "--held-out",
            "live",
            "--metrics",
            "tool_accuracy",
            "--report",
            report,
        ),
        ("rollout", "start", "3"),
    ]


def test_a_data_set_that_is_there_is_not_exported_again(tmp_path: Path) -> None:
    job = sft_job(AgentSFTConfig())
    folder = ("--directory", str(tmp_path))
    commands = list(job.commands(Path("data.yaml"), tmp_path))
    assert commands == [
        ("dataset", "export", "--data", "data.yaml", *folder),
        ("train", "--config", "data.yaml", *folder),
    ]
    (tmp_path / "agent_sft").mkdir()
    assert list(job.commands(Path("data.yaml"), tmp_path)) == commands[1:]


def test_each_stage_begins_where_the_one_before_it_ended(tmp_path: Path) -> None:
    (tmp_path / "stages.yaml").write_text(STAGES)
    jobs = [stage.job for stage in planned(load_stages(tmp_path / "stages.yaml"), tmp_path) if stage.job]
    warmup, sft, rl = (job.data for job in jobs if job.data)

    assert [data.train.start for data in (warmup, sft, rl)] == ["base", "latest", "latest"]
    assert [job.overlay["trainer"].get("total_steps") for job in jobs[:2]] == [4, None]  # 50 rows, 16 a step
    assert warmup.dataset.name == "agent_sft_warmup"
    assert warmup.dataset.sources[0].policy is not None
    assert warmup.dataset.sources[0].policy.labels == ("tool_format_understanding",)
    assert len({str(job.overlay["model"]) for job in jobs}) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cpt: {data: books}", "no training on plain text"),
        ("rl: {algorithm: grpo}", "found grpo, which learns from the sidecar's traffic"),
        ("sft: {lora_rank: 8}", "sft.lora_rank: unknown key; known here: train_data"),
        ("evaluate: {metrics: [bleu]}", "evaluate.metrics: .*'bleu'"),
    ],
)
def test_stages_that_there_are_none_of_are_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "stages.yaml").write_text(text)
    with pytest.raises(ConfigError, match=said) as refused:
        load_stages(tmp_path / "stages.yaml")
    assert str(refused.value).startswith(f"{tmp_path}/stages.yaml: ")


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(sft_job(profile("development", load_in_4bit=False)), id="sft"),
        pytest.param(rl_job(RLTrainingConfig(algorithm="dpo")), id="dpo"),
        pytest.param(rl_job(RLTrainingConfig(algorithm="rft")), id="rft"),
        pytest.param(rl_job(RLTrainingConfig.model_validate(NO_PPO_EXTRAS)), id="ppo"),
        pytest.param(rl_job(RLTrainingConfig(algorithm="grpo", grpo_config=GrpoConfig(beta=0))), id="grpo"),
    ],
)
def test_the_engine_takes_the_overlay(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHECKPOINT_ROOT_DIR", str(tmp_path))
    monkeypatch.setenv("MODEL_PATH", "models/smollm2")
    job.write(tmp_path)
    config = load_config(ROOT / "trainer.yaml", "train", [tmp_path / "overlay.yaml"])

    assert config.algorithm.algorithm_type == job.overlay["algorithm"]["algorithm_type"]
    assert [name for name in config.unknown() if name.startswith(("algorithm.", "model."))] == []
