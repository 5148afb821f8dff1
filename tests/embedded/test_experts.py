"""Mixtures of experts, whose configurations ask for a loss of the router beside the policy's."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_model import save_byte_model
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.models.qwen3_moe import Qwen3MoeConfig

from slipstream.datasets.row import Kind, Provenance, Row, Source
from slipstream.datasets.trained_dataset import TrainedDataset
from slipstream.embedded.config import EngineConfig
from slipstream.embedded.engines.engine import EngineError, Sampling
from slipstream.embedded.engines.transformers_engine import load_transformers_engine
from slipstream.embedded.experiences import Experience

PROMPT = list(range(40, 90))  # long enough that a group's answers are computed together, under a mask
RISES, FALLS = [7, 30, 11], [100, 4]
KINDS = {"sft": Kind.SFT, "dpo": Kind.PREFERENCE, "kto": Kind.KTO, "sdpo": Kind.CORRECTION}


@pytest.fixture(params=[False, True], ids=["asked for by the trainer", "asked for at each pass"])
def experts(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A model directory; finetunes often have the loss computed at each pass, as it was in their training."""
    save_byte_model(tmp_path)
    torch.manual_seed(0)
    config = Qwen3MoeConfig(
        vocab_size=258, hidden_size=32, intermediate_size=48, moe_intermediate_size=16, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, num_experts=4, num_experts_per_tok=2,
        max_position_embeddings=512, initializer_range=0.2, router_aux_loss_coef=0.1,
        output_router_logits=request.param,
    )  # fmt: skip
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    return tmp_path


def configured(experts: Path, **sections: Any) -> EngineConfig:
    return EngineConfig.model_validate(
        {
            "mode": "train",
            "checkpoint_root_dir": str(experts / "job"),
            "model": {"model_path": str(experts), "max_model_len": 512},
            "explorer": {"rollout_model": {"dtype": "float32"}},
            "trainer": {"dtype": "float32"},
            **sections,
        }
    )


def likelihood(model: PreTrainedModel, answer: list[int]) -> Tensor:
    with torch.no_grad():
        logits = model(torch.tensor([[*PROMPT, *answer]])).logits[0, len(PROMPT) - 1 : -1]
    return logits.log_softmax(-1)[torch.arange(len(answer)), torch.tensor(answer)]


def test_a_batch_is_trained_on_by_reinforcement_learning(experts: Path, tmp_path: Path) -> None:
    from slipstream.embedded.learning import Learner

    config = configured(experts, algorithm={"algorithm_type": "grpo", "optimizer": {"lr": 1e-3, "weight_decay": 0.0}})
    before = AutoModelForCausalLM.from_pretrained(experts, dtype=torch.float32)
    trained = Learner(config, experts, tmp_path)
    batch = [
        Experience(
            id=0, msg_id="m", task_id="t", run_id=run, reward=reward, advantage=reward - 0.5, model_version=0,
            prompt_ids=np.array(PROMPT, np.int32), response_ids=np.array(answer, np.int32),
            logprobs=likelihood(before, answer).numpy(),
        )
        for run, (answer, reward) in enumerate([(RISES, 1.0), (FALLS, 0.0)])
    ]  # fmt: skip
    measured = trained.accumulate(batch)
    # the policy's own loss, and nothing of the router's: the ratios are 1 before the first step
    assert measured.loss == pytest.approx(-(0.5 * len(RISES) - 0.5 * len(FALLS)) / 5, abs=1e-4)
    trained.update()
    trained.save_model(tmp_path / "exported")
    after = AutoModelForCausalLM.from_pretrained(tmp_path / "exported")
    assert likelihood(after, RISES).sum() > likelihood(before, RISES).sum()
    assert likelihood(after, FALLS).sum() < likelihood(before, FALLS).sum()


@pytest.mark.slow
@pytest.mark.parametrize("experts", [True], ids=["asked for at each pass"], indirect=True)
@pytest.mark.parametrize("algorithm", ["sft", "dpo", "kto", "sdpo"])
def test_a_data_set_is_trained_on(experts: Path, algorithm: str) -> None:
    """Its trainers do weigh the router's loss, but for self-distillation, whose loss is its own."""
    from slipstream.embedded.supervised import train_rows

    kind = KINDS[algorithm]
    config = configured(
        experts, algorithm={"algorithm_type": algorithm, "optimizer": {"lr": 1e-3}}, buffer={"train_batch_size": 4}
    )
    rows = [
        Row(
            kind,
            [{"role": "user", "content": f"Question {number}?"}],
            {"role": "assistant", "content": f"Answer {number}."},
            Provenance(f"t{number}", "s", "default", Source.POLICY),
            rejected={"role": "assistant", "content": "No."} if kind is Kind.PREFERENCE else None,
            good=bool(number % 2) if kind is Kind.KTO else None,
            correction="I meant the other one" if kind is Kind.CORRECTION else None,
        )
        for number in range(4)
    ]
    done = train_rows(config, rows, TrainedDataset("support", "d1", kind))
    assert (done.version, done.steps, done.rows) == (1, 1, 4)


def test_requests_are_answered_as_the_model_would_alone(experts: Path) -> None:
    greedy = {"model_path": str(experts), "max_model_len": 512, "temperature": 0}
    engine = load_transformers_engine(configured(experts, mode="serve", model=greedy), experts, [])

    async def answer(prompt: list[int]) -> list[int]:
        return [step.sampled.token_id async for step in engine.generate(prompt, Sampling(max_tokens=4))]

    async def answers() -> list[list[int]]:
        found = await asyncio.gather(answer(PROMPT), answer(PROMPT[:3]))
        await asyncio.to_thread(engine.stop)
        return found

    together = asyncio.run(answers())
    model = AutoModelForCausalLM.from_pretrained(experts, dtype=torch.float32)
    for prompt, found in zip((PROMPT, PROMPT[:3]), together, strict=True):
        assert len(found) == 4
        best = model(torch.tensor([[*prompt, *found]])).logits[0, len(prompt) - 1 : -1].argmax(-1)
        assert found == best.tolist()


def test_a_version_is_served(experts: Path, tmp_path: Path) -> None:
    """Its file has each expert apart, and the model has them together."""
    greedy = {"model_path": str(experts), "max_model_len": 512, "temperature": 0}
    engine = load_transformers_engine(configured(experts, mode="serve", model=greedy), experts, [])
    torch.manual_seed(1)
    newer = AutoModelForCausalLM.from_pretrained(experts, dtype=torch.float32)
    with torch.no_grad():
        for weight in newer.parameters():
            weight.copy_(torch.randn_like(weight) * 0.2)
    newer.save_pretrained(tmp_path / "1")
    with torch.no_grad():
        newer.model.layers[0].mlp.experts.down_proj[0, 0, 0] = float("nan")
    newer.save_pretrained(tmp_path / "2")
    newer = AutoModelForCausalLM.from_pretrained(tmp_path / "1", dtype=torch.float32)
    fewer = Qwen3MoeConfig.from_pretrained(experts, num_experts=3)
    AutoModelForCausalLM.from_config(fewer).save_pretrained(tmp_path / "3")

    async def answer() -> list[int]:
        await engine.stage(1, tmp_path / "1")
        for refused in ("2", "3"):
            with pytest.raises(EngineError, match=f"version {refused}: "):
                await engine.stage(int(refused), tmp_path / refused)
        found = [step.sampled.token_id async for step in engine.generate(PROMPT, Sampling(max_tokens=4))]
        await asyncio.to_thread(engine.stop)
        return found

    found = asyncio.run(answer())
    assert engine.version == 1
    assert found == newer(torch.tensor([[*PROMPT, *found]])).logits[0, len(PROMPT) - 1 : -1].argmax(-1).tolist()
