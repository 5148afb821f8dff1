"""Files as Hugging Face's `datasets` reads them, and TRL's trainers prepare them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from dataset_rows import FORMS, dataset, rows
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from slipstream.datasets.folder import new_folder
from slipstream.datasets.formats import Format, to_line
from slipstream.datasets.row import Kind

pytestmark = pytest.mark.slow

TEMPLATE = (
    "{% if tools %}{{ tools | tojson }}\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""As Qwen's: tools and calls as JSON. TRL gives `datasets`' values to it."""


def made(directory: Path, kind: Kind, form: Format, files: str) -> Path:
    with new_folder(directory, dataset(kind, format=form, files=files, name=f"{form}-{kind}-{files}")) as folder:
        for row in rows(kind):
            assert folder.add("train", row)
        assert folder.add("held_out", rows(kind)[0])
        folder.publish({})
    return directory / f"{form}-{kind}-{files}"


def loaded(folder: Path, cache: Path, split: str = "train") -> Any:
    from datasets import load_dataset

    return load_dataset(str(folder), split=split, cache_dir=str(cache))


@pytest.mark.parametrize("files", ["jsonl", "parquet"])
def test_datasets_reads_each_folder_as_it_was_written(tmp_path: Path, files: str) -> None:
    """No key of one row's tools or calls turns up in another's."""
    for form, kind in FORMS:
        folder = made(tmp_path, kind, form, files)
        read = loaded(folder, tmp_path / "cache")
        written = [json.loads(json.dumps(to_line(row, form))) for row in rows(kind)]
        assert [{name: value for name, value in row.items() if value is not None} for row in read] == written
        assert len(loaded(folder, tmp_path / "cache", "held_out")) == 1


@pytest.fixture
def tokenizer(tokenizer_files: Path) -> PreTrainedTokenizerBase:
    found: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(tokenizer_files)
    found.chat_template = TEMPLATE
    return found


def rendered(tokenizer: PreTrainedTokenizerBase, line: dict[str, Any], answer: str) -> str:
    tools = json.loads(line["tools"]) if "tools" in line else None
    text: Any = tokenizer.apply_chat_template(line["prompt"] + line[answer], tools=tools, tokenize=False)
    return str(text)


@pytest.mark.parametrize("files", ["jsonl", "parquet"])
@pytest.mark.parametrize("kind", [Kind.SFT, Kind.PREFERENCE, Kind.KTO])  # corrections: its trainer tokenises later
def test_trl_s_trainers_tokenise_all_of_each_row(
    tmp_path: Path, tiny_model: Path, tokenizer: PreTrainedTokenizerBase, kind: Kind, files: str
) -> None:
    from transformers import AutoModelForCausalLM
    from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer, SFTConfig, SFTTrainer

    trainer_class, config_class = {
        Kind.SFT: (SFTTrainer, SFTConfig),
        Kind.PREFERENCE: (DPOTrainer, DPOConfig),
        Kind.KTO: (KTOTrainer, KTOConfig),
    }[kind]
    folder = made(tmp_path, kind, "trl", files)
    arguments = config_class(
        output_dir=str(tmp_path / "out"),
        max_length=None,
        per_device_train_batch_size=2,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=None,  # TRL sets the old name of it, and transformers warns
        report_to=[],
    )
    trainer = trainer_class(
        model=AutoModelForCausalLM.from_pretrained(tiny_model),
        args=arguments,
        train_dataset=loaded(folder, tmp_path / "cache"),
        processing_class=tokenizer,
    )
    lines = [to_line(row, "trl") for row in rows(kind)]
    for prepared, line in zip(trainer.train_dataset, lines, strict=True):
        for answer, ids in _answers(kind, prepared):
            assert tokenizer.decode(ids) == rendered(tokenizer, line, answer)


def _answers(kind: Kind, prepared: dict[str, Any]) -> list[tuple[str, list[int]]]:
    if kind is Kind.SFT:
        return [("completion", prepared["input_ids"])]
    if kind is Kind.KTO:
        return [("completion", prepared["prompt_ids"] + prepared["completion_ids"])]
    return [(answer, prepared["prompt_ids"] + prepared[f"{answer}_ids"]) for answer in ("chosen", "rejected")]
