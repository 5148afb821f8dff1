"""Self-distillation from corrections: the policy learns to answer as it would have with the correction before it.

The teacher is the policy itself, with the user's words in its prompt (`corrected_prompt`); the student is asked the
prompt alone. On the tokens of an answer the student is trained towards the teacher's distributions, so that a
correction says of each token in which direction to go, where a reward says of the whole answer that it was bad. The
method is that of SDPO (arXiv:2601.20802, in TRL as the experimental SDPOTrainer), on users' next messages as in
arXiv:2603.12273 and in OpenClaw-RL.

Two things are simpler here. The teacher is frozen: it has the weights that training starts from, so its distributions
are computed once, before the first step, and a run that goes on after a kill has the same ones. And the answers are
those of the data set, or the teacher's, so nothing is sampled while the weights change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import structlog
import torch
from datasets import Dataset, Features, List, Value  # type: ignore[import-untyped]
from peft import get_peft_model
from torch import Tensor
from torch.nn.functional import kl_div, log_softmax
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase, TrainingArguments
from transformers.trainer import Trainer

from slipstream.datasets.corrections import shows_correction
from slipstream.embedded.algorithm import PolicyLoss
from slipstream.embedded.config import EngineConfig
from slipstream.embedded.device import device, on_one_gpu
from slipstream.embedded.micro_batches import batch_arguments, rows_together
from slipstream.embedded.policy_model import lora_config
from slipstream.embedded.shared_prompts import NO_LOSS
from slipstream.errors import ConfigError

log = structlog.get_logger(__name__)

_LEAST_TAIL = 1e-7  # of probability outside of the tokens that are kept: its logarithm is finite
_LONGEST_ANSWER = 1024
"""Tokens that the teacher answers with at most, if `model.max_response_tokens` says nothing."""


class SelfDistillationTrainer(Trainer):
    """Trains on rows with the teacher's distributions, as `with_teacher` makes them.

    Args:
        alpha: of `divergence`.
        multiple: a batch's length is a multiple of so many tokens.
    """

    def __init__(self, model: Any, *, alpha: float, pad_id: int, multiple: int, **more: Any) -> None:
        super().__init__(model, data_collator=_Collator(pad_id, multiple), **more)
        self._alpha = alpha

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Tensor],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        labels = inputs["labels"][:, 1:]
        outputs = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"])
        at = labels != NO_LOSS
        student = log_softmax(outputs.logits[:, :-1][at].float(), dim=-1).gather(1, inputs["teacher_ids"])
        per_token = divergence(with_tail(student), with_tail(inputs["teacher_logprobs"]), self._alpha)
        loss = per_token.sum() / (len(per_token) if num_items_in_batch is None else num_items_in_batch)
        return (loss, outputs) if return_outputs else loss


def self_distillation_trainer(
    config: EngineConfig,
    policy: tuple[PreTrainedModel, PreTrainedTokenizerBase],
    rows: Dataset,
    order: list[int],
    common: Mapping[str, Any],
) -> SelfDistillationTrainer:
    """Have the teacher answer, and build the trainer, with fresh adapters where there are to be any.

    Args:
        rows: in the columns of `token_table` for corrections.
        order: places of the rows, as they are trained on.
        common: arguments that all trainers of data sets take, by TRL's names.

    Raises:
        ConfigError: the weights are to be kept in 4 or 8 bits.
    """
    model, tokenizer = policy
    if any(lora.load_in_4bit or lora.load_in_8bit for lora in config.model.lora_configs or ()):
        raise ConfigError("model.lora_configs.0: expected no load_in_4bit and load_in_8bit for sdpo, found one of them")
    arguments = dict(common)
    multiple, recomputes = arguments.pop("pad_to_multiple_of"), arguments.pop("activation_checkpointing")
    del arguments["max_length"]
    loss = config.algorithm.policy_loss_fn_args
    taught = with_teacher(
        model.to(device()),  # type: ignore[arg-type]
        tokenizer,
        rows,
        loss,
        together=arguments["per_device_train_batch_size"],
        longest_answer=config.model.max_response_tokens,
        context=config.model.context_length,
        temperature=config.model.temperature,
        seed=arguments["seed"],
    )
    # the teacher's answers may be longer than those of the data set
    longest = max(len(ids) for ids in taught["input_ids"])
    arguments |= batch_arguments(config, rows_together(config, "sdpo", longest, device()))
    adapters = lora_config(config)
    return SelfDistillationTrainer(
        model if adapters is None else get_peft_model(model, adapters),
        args=on_one_gpu(
            TrainingArguments(
                **arguments,
                remove_unused_columns=False,
                gradient_checkpointing=recomputes,
                # with the other way nothing comes back to adapters through frozen weights
                gradient_checkpointing_kwargs={"use_reentrant": False},
            )
        ),
        train_dataset=taught.select(order),
        alpha=loss.distillation_alpha,
        pad_id=tokenizer.eos_token_id or 0,
        multiple=multiple,
    )


def divergence(student: Tensor, teacher: Tensor, alpha: float) -> Tensor:
    """Divergence of two distributions, in nats.

    Args:
        student, teacher: log-probabilities, shape (tokens, outcomes).
        alpha: 0 for KL(teacher || student), 1 for KL(student || teacher); between them the generalised Jensen-Shannon
            divergence of arXiv:2306.13649, whose mixture has the teacher by so much.

    Returns:
        Shape (tokens,).
    """
    if alpha in (0.0, 1.0):
        one, other = (teacher, student) if alpha == 0.0 else (student, teacher)
        return kl_div(other, one, reduction="none", log_target=True).sum(-1)
    share = torch.tensor(alpha, dtype=student.dtype, device=student.device)
    mixture = torch.logaddexp(student + torch.log1p(-share), teacher + torch.log(share))
    of_teacher, of_student = (kl_div(mixture, each, reduction="none", log_target=True) for each in (teacher, student))
    return torch.lerp(of_student, of_teacher, alpha).sum(-1)


def with_tail(logprobs: Tensor) -> Tensor:
    """Append all other tokens as one outcome more, so that the probabilities are 1 together.

    The divergence over these outcomes is never above that over all tokens (the data-processing inequality).
    """
    kept = logprobs.logsumexp(-1, keepdim=True).exp().clamp(max=1 - _LEAST_TAIL)
    return torch.cat([logprobs, torch.log1p(-kept)], dim=-1)


def with_teacher(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: Dataset,
    loss: PolicyLoss,
    *,
    together: int,
    longest_answer: int | None,
    context: int,
    temperature: float,
    seed: int,
) -> Dataset:
    """Have the teacher answer, and keep its distributions over the tokens of the answers.

    Args:
        model: with the weights that training starts from.
        rows: in the columns of `token_table` for corrections.
        loss: says whose answers, and how many tokens of each distribution are kept.
        together: rows that the teacher answers at once.
        longest_answer: tokens; a longer answer of the teacher is not taken.
        context: tokens that the teacher's prompt and answer may have together.

    Returns:
        A data set on disk with as many rows: `input_ids`, `labels`, `teacher_ids` and `teacher_logprobs`, the last two
        of shape (tokens of the answer, kept).
    """
    teacher = _Teacher(model, tokenizer, loss.distillation_topk)
    sampled = 0

    def computed(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        nonlocal sampled
        answers = batch["answer_ids"]
        if loss.distillation_answers == "corrected":
            room = context - max(map(len, batch["hinted_ids"]))
            own = teacher.answers(batch, min(longest_answer or _LONGEST_ANSWER, room), temperature)
            sampled += sum(answer is not None for answer in own)
            answers = [answer or given for answer, given in zip(own, answers, strict=True)]
        targets = [teacher.distributions(*each) for each in zip(batch["hinted_ids"], answers, strict=True)]
        return {
            "input_ids": [[*prompt, *answer] for prompt, answer in zip(batch["prompt_ids"], answers, strict=True)],
            "labels": [
                [NO_LOSS] * len(prompt) + answer for prompt, answer in zip(batch["prompt_ids"], answers, strict=True)
            ],
            "teacher_ids": [ids for ids, _ in targets],
            "teacher_logprobs": [logprobs for _, logprobs in targets],
        }

    with _as_served(model, seed):
        made = rows.map(
            computed,
            batched=True,
            batch_size=together,
            remove_columns=rows.column_names,
            features=_FEATURES,
            load_from_cache_file=False,
            new_fingerprint=f"teacher-{seed}",  # made from the function, it would be made from the model's weights
        )
    log.info("the teacher has answered", rows=len(rows), own_answers=sampled, given_answers=len(rows) - sampled)
    return made


_IDS = List(Value("int32"))
_FEATURES = Features(
    {
        "input_ids": _IDS,
        "labels": _IDS,
        "teacher_ids": List(_IDS),
        "teacher_logprobs": List(List(Value("float32"))),
    }
)


class _Teacher:
    """The policy with corrections in its prompts."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, topk: int) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._topk = topk

    def answers(self, batch: dict[str, list[list[int]]], longest: int, temperature: float) -> list[list[int] | None]:
        """An answer to each prompt with its correction; None for one that does not end, or shows the correction."""
        prompts = batch["hinted_ids"]
        ending = sorted({answer[-1] for answer in batch["answer_ids"]})
        width = max(map(len, prompts))
        pad = ending[0]
        ids = torch.tensor([[pad] * (width - len(prompt)) + prompt for prompt in prompts], device=self._model.device)
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]).to(ids.device)
        sampling = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0} if temperature else {}
        sampled: Any = self._model.generate(  # type: ignore[operator]
            input_ids=ids,
            attention_mask=mask,
            max_new_tokens=longest,
            eos_token_id=ending,
            pad_token_id=pad,
            **({"do_sample": False} | sampling),
        )
        found: list[list[int] | None] = []
        columns = (batch[name] for name in ("prompt_ids", "answer_ids", "correction_ids"))
        for row, prompt, given, correction in zip(sampled[:, width:].tolist(), *columns, strict=True):
            end = next((place for place, token in enumerate(row) if token in ending), None)
            answer = None if not end else row[: end + 1]
            if answer is not None and shows_correction(
                self._text(answer[:-1]), self._text(correction), f"{self._text(prompt)} {self._text(given)}"
            ):
                answer = None
            found.append(answer)
        return found

    def distributions(self, prompt: Sequence[int], answer: Sequence[int]) -> tuple[list[list[int]], list[list[float]]]:
        """The likeliest tokens at each place of an answer, and their log-probabilities."""
        ids = torch.tensor([[*prompt, *answer]], device=self._model.device)
        logits = self._model(input_ids=ids, logits_to_keep=len(answer) + 1).logits[0, :-1].float()
        kept = log_softmax(logits, dim=-1).topk(self._topk)
        return kept.indices.tolist(), kept.values.tolist()

    def _text(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))


@contextmanager
def _as_served(model: PreTrainedModel, seed: int) -> Iterator[None]:
    """Have a model compute without gradients and dropout, and draw by a seed of its own from the distribution that the
    Explorer draws from: without penalties and such of its own `generation_config`, from which `generate` takes what it
    is not given, also beside another such configuration."""
    trains, generation = model.training, model.generation_config
    gpu = [model.device] if model.device.type == "cuda" else []
    model.train(False)
    model.generation_config = GenerationConfig()  # type: ignore[no-untyped-call]
    try:
        with torch.no_grad(), torch.random.fork_rng(gpu):
            torch.manual_seed(seed)
            yield
    finally:
        model.train(trains)
        model.generation_config = generation


class _Collator:
    """Pads rows at their end, and puts the teacher's distributions one behind the other."""

    def __init__(self, pad_id: int, multiple: int) -> None:
        self._pad_id = pad_id
        self._multiple = multiple

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        longest = max(len(row["input_ids"]) for row in rows)
        width = -(-longest // self._multiple) * self._multiple
        spare = [width - len(row["input_ids"]) for row in rows]
        return {
            "input_ids": torch.tensor(
                [row["input_ids"] + [self._pad_id] * more for row, more in zip(rows, spare, strict=True)]
            ),
            "attention_mask": torch.tensor([[1] * (width - more) + [0] * more for more in spare]),
            "labels": torch.tensor([row["labels"] + [NO_LOSS] * more for row, more in zip(rows, spare, strict=True)]),
            "teacher_ids": torch.tensor([ids for row in rows for ids in row["teacher_ids"]]),
            "teacher_logprobs": torch.tensor([values for row in rows for values in row["teacher_logprobs"]]),
        }
