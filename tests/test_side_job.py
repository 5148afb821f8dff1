"""The file of Trinity-RFT's side job, and what is done to the policy's job around it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from slipstream.errors import ConfigError
from slipstream.trinity import fresh_optimizer, side_job
from slipstream.trinity.checkpoint_files import META, json_object, put_in_place, replace_text
from slipstream.trinity.document import load_document
from slipstream.trinity.side_job import Algorithm, SideJob
from slipstream.trinity.side_version import optimizer_settings
from slipstream.trinity.waiting_experiences import discard_outside

ROOT = Path(__file__).parents[1]
SIDE = SideJob(Path("/job/trinity_run"), Path("/job/global_step_3/actor/huggingface"), Path("/job/rows"), 12, "r1")


@pytest.fixture(autouse=True)
def _variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MODEL_PATH", "/models/policy")
    monkeypatch.setenv("CHECKPOINT_ROOT_DIR", str(tmp_path))


def shipped(algorithm: Algorithm) -> dict[str, Any]:
    return load_document(ROOT / "trainer.yaml", [ROOT / "overlays" / f"{algorithm}.yaml"])


@pytest.mark.parametrize("algorithm", ["sft", "dpo"])
def test_the_shipped_files_make_a_side_job(algorithm: Algorithm) -> None:
    given = shipped(algorithm)
    given |= {"stages": [{"stage_name": "one"}], "data_processor": {"experience_pipeline": {}}}
    before = copy.deepcopy(given)
    side_job.check(given, algorithm)

    made = side_job.document(given, algorithm, SIDE)

    assert given == before
    assert "stages" not in made, "they would rename the job"
    assert made["model"]["model_path"] == str(SIDE.model), "the reference of DPO too"
    assert (made["trainer"]["total_steps"], made["buffer"]["total_steps"]) == (12, 12)
    assert made["trainer"]["use_dynamic_bsz"] is (algorithm == "sft"), "it would part the two of a pair"
    assert made["trainer"]["save_interval"] == given["trainer"]["save_interval"]
    buffer = made["buffer"]["trainer_input"]["experience_buffer"]
    assert (buffer["storage_type"], buffer["format"]["messages_key"]) == ("file", "messages")
    assert set(made["algorithm"]["policy_loss_fn_args"]) == (
        {"loss_agg_mode"} if algorithm == "sft" else {"beta", "label_smoothing"}
    ), "Trinity's loss fails on others"
    assert made["cluster"] == given["cluster"], "shards of as many ranks as the policy's Trainer reads"
    assert made["ray_namespace"] == "slipstream-dataset-r1"


def test_what_trinity_cannot_do_is_refused_by_its_key() -> None:
    wrong = shipped("dpo")
    wrong["algorithm"]["policy_loss_fn_args"] |= {"loss_type": "ipo", "reference_free": True}
    wrong["algorithm"]["optimizer"]["lr_scheduler_type"] = "linear"
    wrong["model"]["lora_configs"] = [{"lora_rank": 8}]
    wrong["trainer"]["trainer_strategy"] = "megatron"
    wrong["buffer"]["train_batch_size"] = True
    del wrong["cluster"]["gpu_per_node"]
    with pytest.raises(ConfigError) as raised:
        side_job.check(wrong, "dpo")
    assert [problem.partition(":")[0] for problem in raised.value.problems] == [
        "algorithm.optimizer.lr_scheduler_type",
        "algorithm.policy_loss_fn_args.loss_type",
        "algorithm.policy_loss_fn_args.reference_free",
        "model.lora_configs",
        "buffer.train_batch_size",
        "cluster.gpu_per_node",
        "trainer.trainer_strategy",
    ]


def test_experiences_of_other_versions_are_never_taken(tmp_path: Path) -> None:
    document = {
        "project": "p", "name": "n", "checkpoint_root_dir": str(tmp_path),
        "buffer": {"trainer_input": {"experience_buffer": {"name": "exp_buffer", "storage_type": "sql"}}},
    }  # fmt: skip
    assert discard_outside(document, 3, 4) == 0, "the Explorer has never run"
    folder = tmp_path / "p" / "n" / "buffer"
    folder.mkdir(parents=True)
    engine = create_engine(f"sqlite:///{folder}/exp_buffer.db")
    with engine.begin() as connection:
        assert discard_outside(document, 3, 4) == 0
        connection.execute(text("CREATE TABLE exp_buffer (id INTEGER, model_version INTEGER, consumed INTEGER)"))
        waiting = "(1, 2, 0), (2, 2, 1), (3, 3, 0), (4, NULL, 0), (5, 4, 0), (6, 5, 0)"
        connection.execute(text(f"INSERT INTO exp_buffer VALUES {waiting}"))
    assert discard_outside(document, 3, 4) == 3
    with engine.begin() as connection:
        assert connection.execute(text("SELECT id FROM exp_buffer WHERE consumed = 0")).scalars().all() == [3, 5]
    engine.dispose()


@pytest.mark.slow  # torch
def test_a_trainer_that_resumes_has_its_own_learning_rate_and_no_moments(tmp_path: Path) -> None:
    """As verl saves and loads: optimizer and schedule of supervised training, into one of reinforcement learning."""
    import torch
    from torch.optim import AdamW
    from torch.optim.lr_scheduler import LambdaLR

    weight = torch.nn.Parameter(torch.ones(3))

    def trainer(lr: float, decay: float) -> tuple[AdamW, LambdaLR]:
        optimizer = AdamW([weight], lr=lr, weight_decay=decay)
        return optimizer, LambdaLR(optimizer, lambda step: 1.0)

    optimizer, schedule = trainer(2e-5, 0.5)
    weight.sum().backward()
    optimizer.step()
    schedule.step()
    torch.save(optimizer.state_dict(), tmp_path / "optim_world_size_1_rank_0.pt")
    torch.save({"lr_scheduler": schedule.state_dict(), "rng": 7}, tmp_path / "extra_state_world_size_1_rank_0.pt")

    for _ in range(2):
        settings = optimizer_settings({"lr": 1e-6, "weight_decay": 0.0})
        assert fresh_optimizer.reset(tmp_path, {**settings, "betas": tuple(settings["betas"])}) == 1

    optimizer, schedule = trainer(1e-6, 0.0)
    optimizer.load_state_dict(torch.load(tmp_path / "optim_world_size_1_rank_0.pt", weights_only=False))
    extra = torch.load(tmp_path / "extra_state_world_size_1_rank_0.pt", weights_only=False)
    assert extra == {"lr_scheduler": None, "rng": 7}
    assert not optimizer.state
    for _ in range(2):
        group = optimizer.param_groups[0]
        assert (group["lr"], group["weight_decay"], group["betas"]) == (1e-6, 0.0, (0.9, 0.999))
        optimizer.step()
        schedule.step()


def test_markers_keep_what_trinity_noted_beside_them(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    replace_text(tmp_path / META, '{"latest_iteration": 1, "sample_strategy_state": {"offset": 64}}')
    put_in_place(tmp_path, tmp_path / "made", 2, resumable=True)
    assert json_object(tmp_path / META) == {"latest_iteration": 2, "sample_strategy_state": {"offset": 64}}
