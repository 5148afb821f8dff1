from __future__ import annotations

import copy
import gc
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from slipstream.embedded.config import EngineConfig
from slipstream.embedded.experiences import Experience
from slipstream.errors import ConfigError

if TYPE_CHECKING:
    from slipstream.embedded.learning import Learner

# peft 0.21 asks transformers 5.23 by a name that is on its way out
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")

PROMPT, OTHER_PROMPT = [5, 17, 300, 42], [8, 9]
AGENT = list(range(50, 90))  # long enough that the steps of a run are computed together
RISES, FALLS = [7, 30, 11], [100, 4]
LR = 1e-3


def learner(path: Path, tmp_path: Path, **sections: Any) -> Learner:
    """In float32, so that numbers can be compared, and without weight decay, so that only the gradient moves."""
    config = {
        "mode": "train",
        "checkpoint_root_dir": str(tmp_path),
        "model": {"model_path": str(path), "max_model_len": 512, **sections.get("model", {})},
        "algorithm": {
            "algorithm_type": "grpo",
            "optimizer": {"lr": LR, "weight_decay": 0.0, "clip_grad": 1e6} | sections.get("optimizer", {}),
            "policy_loss_fn_args": sections.get("loss", {}),
        },
        "trainer": {"dtype": sections.get("dtype", "float32"), **sections.get("trainer", {})},
    }
    from slipstream.embedded.learning import Learner

    return Learner(EngineConfig.model_validate(config), path, tmp_path)


def logps(model: PreTrainedModel, prompt: Sequence[int], answer: Sequence[int], temperature: float = 1.0) -> Tensor:
    """Log-probability of each answer token, computed the plain way."""
    logits = model(input_ids=torch.tensor([[*prompt, *answer]])).logits[0, len(prompt) - 1 : -1] / temperature
    return logits.log_softmax(-1)[torch.arange(len(answer)), torch.tensor(answer)]


def experience(
    model: PreTrainedModel,
    answer: Sequence[int],
    advantage: float | None,
    prompt: Sequence[int] = PROMPT,
    reward: float = 0.0,
    temperature: float = 1.0,
    **changes: Any,
) -> Experience:
    """As the model itself would have sampled it."""
    with torch.no_grad():
        sampled = logps(model, prompt, answer, temperature).numpy().astype(np.float32)
    fields: dict[str, Any] = {
        "id": 0,
        "msg_id": "m",
        "task_id": "t",
        "run_id": 0,
        "reward": reward,
        "advantage": advantage,
        "prompt_ids": np.array(prompt, np.int32),
        "response_ids": np.array(answer, np.int32),
        "logprobs": sampled,
        "model_version": 0,
    }
    return Experience(**fields | changes)


@pytest.fixture
def model(tiny_model: Path) -> PreTrainedModel:
    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32).eval()
    model.get_input_embeddings().padding_idx = None  # the token that pads ends turns too, and has a gradient
    return model


def exported(trained: Learner, tmp_path: Path) -> Path:
    trained.save_model(tmp_path / "exported")
    return tmp_path / "exported"


def step(trained: Learner, batch: Sequence[Experience]) -> None:
    trained.accumulate(batch)
    trained.update()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("single", [False, True], ids=["grpo", "ppo"])
def test_what_was_rewarded_gets_likelier_and_what_was_not_less(
    tiny_model: Path, model: PreTrainedModel, tmp_path: Path, single: bool
) -> None:
    trained = learner(tiny_model, tmp_path, optimizer={"lr": 1e-4})
    batch = [
        experience(model, RISES, None if single else 0.7, reward=1.0),
        experience(model, FALLS, None if single else -0.7, reward=0.0),
    ]
    for _ in range(3):
        step(trained, batch)

    after = AutoModelForCausalLM.from_pretrained(exported(trained, tmp_path))
    with torch.no_grad():
        assert logps(after, PROMPT, RISES).sum() > logps(model, PROMPT, RISES).sum() + 0.1
        assert logps(after, PROMPT, FALLS).sum() < logps(model, PROMPT, FALLS).sum() - 0.1


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("loss", "weight"),
    [
        ("token-mean", lambda answer, batch: 1 / sum(len(other) for other in batch)),
        ("seq-mean-token-mean", lambda answer, batch: 1 / (len(batch) * len(answer))),
    ],
)
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_step_is_that_of_the_policy_gradient(
    tiny_model: Path, model: PreTrainedModel, tmp_path: Path, loss: str, weight: Any, temperature: float
) -> None:
    rows = [(PROMPT, RISES, 1.3), (PROMPT, FALLS, -0.4), (OTHER_PROMPT, [1, 2, 3, 4, 5], 0.5), (PROMPT, [6], 0.0)]
    rows += [(AGENT, RISES, 0.9), ([*AGENT, *RISES, 8, 9, 10], FALLS, 0.9), (AGENT, FALLS, -0.8)]
    answers = [answer for _, answer, _ in rows]
    trained = learner(tiny_model, tmp_path, model={"temperature": temperature}, loss={"loss_agg_mode": loss})
    metrics = trained.accumulate(
        [experience(model, answer, advantage, prompt, temperature=temperature) for prompt, answer, advantage in rows]
    )
    trained.update()

    expected = sum(
        -advantage * weight(answer, answers) * logps(model, prompt, answer, temperature).sum()
        for prompt, answer, advantage in rows
    )
    expected.backward()
    norm = math.sqrt(sum(float(parameter.grad.square().sum()) for parameter in model.parameters()))
    assert metrics.grad_norm == pytest.approx(norm, rel=1e-3)
    # Adam's first step is lr * gradient / (|gradient| + 1e-8)
    after = load_file(exported(trained, tmp_path) / "model.safetensors")
    for name, parameter in model.named_parameters():
        moved = parameter.detach() - after[name]
        plain = LR * parameter.grad / (parameter.grad.abs() + 1e-8)
        clear = parameter.grad.abs() > 1e-5
        torch.testing.assert_close(moved[clear], plain[clear], rtol=0.05, atol=1e-5)


def test_without_an_advantage_nothing_changes(tiny_model: Path, model: PreTrainedModel, tmp_path: Path) -> None:
    trained = learner(tiny_model, tmp_path, optimizer={"weight_decay": 0.1})
    step(trained, [experience(model, RISES, 0.0, reward=1.0), experience(model, FALLS, 0.0, reward=1.0)])

    after = load_file(exported(trained, tmp_path) / "model.safetensors")
    assert all(torch.equal(parameter, after[name]) for name, parameter in model.state_dict().items())


def test_a_ratio_beyond_the_clip_range_moves_nothing(tiny_model: Path, model: PreTrainedModel, tmp_path: Path) -> None:
    trained = learner(tiny_model, tmp_path)
    likelier_by_now = experience(model, RISES, 1.0)
    stale = experience(model, RISES, 1.0, logprobs=likelier_by_now.logprobs - 0.5)
    metrics = trained.accumulate([stale])

    assert metrics.clip_fraction == 1.0
    assert metrics.kl_to_sampling == pytest.approx(math.exp(0.5) - 1.5, rel=1e-2)
    assert metrics.grad_norm == 0.0


def test_adapters_are_merged_into_what_is_exported(tiny_model: Path, model: PreTrainedModel, tmp_path: Path) -> None:
    trained = learner(
        tiny_model, tmp_path, model={"lora_configs": [{"lora_rank": 4, "lora_alpha": 8}]}, optimizer={"lr": 1e-2}
    )
    batch = [experience(model, RISES, 1.0), experience(model, FALLS, -1.0)]
    for _ in range(3):
        step(trained, batch)

    path = exported(trained, tmp_path)
    assert load_file(path / "model.safetensors").keys() == model.state_dict().keys()
    after = AutoModelForCausalLM.from_pretrained(path)
    with torch.no_grad():
        assert logps(after, PROMPT, RISES).sum() > logps(model, PROMPT, RISES).sum()


@pytest.mark.slow
@pytest.mark.parametrize("lora", [None, [{"lora_rank": 4}]], ids=["full", "lora"])
def test_training_goes_on_exactly_from_a_saved_state(
    tiny_model: Path, model: PreTrainedModel, tmp_path: Path, lora: Any
) -> None:
    batch = [experience(model, RISES, 1.0), experience(model, FALLS, -1.0)]
    through = learner(tiny_model, tmp_path, model={"lora_configs": lora})
    step(through, batch)
    torch.save(through.state(), tmp_path / "state.pt")
    step(through, batch)

    resumed = learner(tiny_model, tmp_path, model={"lora_configs": lora})
    resumed.go_on_from(1, torch.load(tmp_path / "state.pt", weights_only=True))
    step(resumed, batch)

    whole = load_file(exported(through, tmp_path / "a") / "model.safetensors")
    again = load_file(exported(resumed, tmp_path / "b") / "model.safetensors")
    assert all(torch.equal(tensor, again[name]) for name, tensor in whole.items())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("schedule", "rate"),
    [
        ({"lr_warmup_steps": 8}, 1 / 4),
        ({"lr_warmup_steps": 1}, 1),
        ({"lr_scheduler_type": "cosine"}, (1 + math.cos(math.pi / 4)) / 2),
    ],
    ids=["in the warm-up", "after it", "cosine"],
)
def test_without_a_state_the_schedule_goes_on_at_its_step(
    tiny_model: Path, model: PreTrainedModel, tmp_path: Path, schedule: dict[str, Any], rate: float
) -> None:
    resumed = learner(tiny_model, tmp_path, optimizer=schedule, trainer={"total_steps": 8})
    resumed.go_on_from(2, None)
    step(resumed, [experience(model, RISES, 1.0)])

    assert furthest(resumed, model.state_dict(), tmp_path) == pytest.approx(rate * LR, rel=1e-2)


@pytest.mark.slow
def test_changed_settings_of_the_optimizer_hold_from_a_saved_state_on(
    tiny_model: Path, model: PreTrainedModel, tmp_path: Path
) -> None:
    batch = [experience(model, RISES, 1.0)]
    before = learner(tiny_model, tmp_path)
    step(before, batch)
    state = copy.deepcopy(before.state())

    changed = {"lr": LR / 10, "betas": (0.5, 0.7), "weight_decay": 0.2}
    resumed = learner(tiny_model, tmp_path, optimizer=changed)
    resumed.go_on_from(1, state)
    taken_over = resumed.state()["optimizer"]
    moments = {key: part["exp_avg"] for key, part in state["optimizer"]["state"].items()}
    assert moments
    assert all(torch.equal(taken_over["state"][key]["exp_avg"], moments[key]) for key in moments)
    groups = taken_over["param_groups"]
    assert {(*group["betas"], group["lr"]) for group in groups} == {(0.5, 0.7, LR / 10)}
    assert {group["weight_decay"] for group in groups} == {0.2, 0.0}  # none for norms
    step(resumed, batch)
    assert LR / 20 < furthest(resumed, state["model"], tmp_path) < LR / 4


def furthest(trained: Learner, begun: dict[str, Tensor], tmp_path: Path) -> float:
    """The largest change of a weight in the step. In Adam's first step it is the learning rate."""
    after = load_file(exported(trained, tmp_path) / "model.safetensors")
    return max(float((tensor - begun[name]).abs().max()) for name, tensor in after.items())


@pytest.mark.slow
def test_an_export_leaves_no_second_model(tiny_model: Path, tmp_path: Path) -> None:
    trained = learner(tiny_model, tmp_path)
    gc.collect()
    before = alive()
    for _ in range(3):
        trained.save_model(tmp_path / "exported")
    assert alive() == before, "models that nobody uses, and that wait for Python's collector"


def alive() -> int:
    return sum(type(each).__name__.startswith("Llama") for each in gc.get_objects())


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_version_of_a_model_of_half_precision_is_what_was_computed_with(
    tiny_model: Path, model: PreTrainedModel, tmp_path: Path, dtype: str
) -> None:
    """Steps of the usual size vanish in the 8 bits of bfloat16: a version that is rounded to them, where training is
    not, answers as another policy than the one that learns from its answers."""
    half = tmp_path / "half"
    model.to(torch.bfloat16).save_pretrained(half)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (half / name).write_bytes((tiny_model / name).read_bytes())
    trained = learner(half, tmp_path, dtype=dtype)
    step(trained, [experience(model.float(), RISES, 1.0)])

    path = exported(trained, tmp_path)
    precision = getattr(torch, dtype)
    assert {tensor.dtype for tensor in load_file(path / "model.safetensors").values()} == {precision}
    served = AutoModelForCausalLM.from_pretrained(path).eval()
    assert served.dtype == precision
    if dtype == "float32":
        metrics = trained.accumulate([experience(served, RISES, 1.0)])
        assert metrics.kl_to_sampling == pytest.approx(0.0, abs=1e-9)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "changes",
    [
        {"logprobs": np.array([-1.0], np.float32)},
        {"response_ids": np.array([], np.int32), "logprobs": np.array([], np.float32)},
        {"prompt_ids": np.array([], np.int32)},
        {"logprobs": np.array([np.nan] * 3, np.float32)},
    ],
)
def test_a_malformed_experience_changes_nothing(
    tiny_model: Path, model: PreTrainedModel, tmp_path: Path, changes: dict[str, Any]
) -> None:
    from slipstream.embedded.grpo import TrainingError

    trained = learner(tiny_model, tmp_path)
    with pytest.raises(TrainingError, match=r"experience m: expected a prompt|the gradient's norm is nan"):
        trained.accumulate([experience(model, RISES, 1.0, **changes)])

    after = load_file(exported(trained, tmp_path) / "model.safetensors")
    assert all(torch.equal(parameter, after[name]) for name, parameter in model.state_dict().items())


def test_single_samples_are_compared_with_their_batch(model: PreTrainedModel) -> None:
    from slipstream.embedded.learning import batch_advantages

    rows = [experience(model, RISES, None, reward=reward) for reward in (1.0, 0.0, 0.5)]

    assert batch_advantages(rows) == pytest.approx([1.2247, -1.2247, 0.0], abs=1e-4)
    assert batch_advantages(rows[:1]) == [0.0]
    assert batch_advantages([experience(model, RISES, 0.25, reward=9.0)]) == [0.25]


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"model": {"temperature": 0}}, "model.temperature: expected above 0"),
        ({"model": {"lora_configs": [{"target_modules": ["absent"]}]}}, "model.lora_configs"),
        ({"optimizer": {"lr_scheduler_type": "cosine"}}, "algorithm.optimizer.lr_scheduler_type: expected 'constant'"),
        ({"optimizer": {"lr_scheduler_type": "constantly"}}, "algorithm.optimizer"),
    ],
)
def test_a_setting_that_cannot_be_trained_with_is_named(
    tiny_model: Path, tmp_path: Path, sections: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        learner(tiny_model, tmp_path, **sections)


def test_a_path_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.model_path: expected a Hugging Face model directory"):
        learner(tmp_path / "absent", tmp_path)
