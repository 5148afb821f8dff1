"""Data sets in Trinity's format, as Trinity's own file reader reads and tokenises them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dataset_rows import dataset, rows
from real_trinity import Installation
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from slipstream.datasets.folder import new_folder
from slipstream.datasets.formats import to_line
from slipstream.datasets.row import Kind, Row
from slipstream.datasets.row_order import order
from slipstream.datasets.trained_dataset import TrainedDataset
from slipstream.datasets.trinity_check import RowCheck
from slipstream.datasets.trinity_rows import write_rows
from slipstream.trinity.side_job import Algorithm

TEMPLATE = (
    "{% if tools %}{{ tools | tojson }}\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def read(installation: Installation, folders: Sequence[str], model: Path) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = installation.run("read_dataset", model, TEMPLATE, *folders)[0]
    return found


def without_special_text(row: Row) -> Row:
    """The row with answers that do not speak of the token by which a turn ends."""

    def cleaned(message: Mapping[str, Any] | None) -> Any:
        return json.loads(json.dumps(message).replace("<|im_end|>", "the end"))

    return replace(row, answer=cleaned(row.answer), rejected=cleaned(row.rejected))


def expected(given: Sequence[Row], tokenizer: PreTrainedTokenizerBase) -> Iterator[dict[str, Any]]:
    for row in given:
        line = to_line(row, "trinity")
        if row.kind is Kind.SFT:
            *prompt, answer = json.loads(line["messages"])
            answers, tools = [[answer]], json.loads(line["tools"] or "null")
        else:
            prompt, answers, tools = line["messages"], [line["chosen"], line["rejected"]], None
        asked, *whole = (
            tokenizer.apply_chat_template(
                messages, tools=tools, chat_template=TEMPLATE, add_generation_prompt=messages is prompt, tokenize=False
            )
            for messages in (prompt, *(prompt + answer for answer in answers))
        )
        yield {"prompt": asked, "answers": [str(text).removeprefix(str(asked)) for text in whole]}


def test_trinity_reads_what_was_written(installation: Installation, tmp_path: Path, tokenizer_files: Path) -> None:
    wanted: dict[str, list[Any]] = {}
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_files)
    for kind, schema in ((Kind.SFT, "sft"), (Kind.PREFERENCE, "dpo")):
        for files in ("jsonl", "parquet"):
            with new_folder(tmp_path, dataset(kind, format="trinity", files=files, name=f"{kind}-{files}")) as folder:
                for row in rows(kind):
                    assert folder.add("train", row)
                folder.publish({})
            wanted[f"{tmp_path}/{kind}-{files}:{schema}"] = list(expected(rows(kind), tokenizer))
    assert read(installation, list(wanted), tokenizer_files) == wanted


def test_trinity_reads_the_rows_of_a_side_job_in_their_order(
    installation: Installation, tmp_path: Path, tokenizer_files: Path
) -> None:
    """And what is looked at before, of which a row may be left out, is what Trinity makes of it."""
    wanted: dict[str, list[Any]] = {}
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_files)
    model = tmp_path / "model"
    shutil.copytree(tokenizer_files, model)
    (model / "config.json").write_text("{}")
    training = {"model": {"max_model_len": 1_000_000, "custom_chat_template": TEMPLATE}}
    kinds: tuple[tuple[Kind, Algorithm], ...] = ((Kind.SFT, "sft"), (Kind.PREFERENCE, "dpo"))
    for kind, schema in kinds:
        data = TrainedDataset("support", "d1", kind)
        folder = tmp_path / f"rows-{schema}"
        check = RowCheck(training, model, schema)
        given = [without_special_text(row) for row in rows(kind)]
        written = write_rows(given, data, folder, check, batch=5, epochs=1, most=None)
        assert (written.rows, written.left_out) == (5, {})
        found = list(expected(given, tokenizer))
        wanted[f"{folder}:{schema}"] = [found[place] for place in order([1.0] * 5, 1, 0)]
    assert read(installation, list(wanted), tokenizer_files) == wanted


def test_rows_that_would_teach_nothing_are_left_out(tmp_path: Path, tokenizer_files: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(tokenizer_files, model)
    (model / "config.json").write_text("{}")
    plain = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    plain += "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    training = {"model": {"max_model_len": 10_000, "custom_chat_template": plain}}
    check = RowCheck(training, model, "sft")
    assert check(to_line(without_special_text(rows(Kind.SFT)[0]), "trinity")) is None
    assert [check(to_line(row, "trinity")) for row in rows(Kind.SFT)] == [
        "an answer with a special token of the model",
        "longer than model.max_model_len",
        "tools that the model's template leaves out",
        "tools that the model's template leaves out",
        "tools that the model's template leaves out",
    ]
    called = replace(rows(Kind.SFT)[2], tools=())
    assert check(to_line(called, "trinity")) == "an answer that the model's template leaves out"
    alike = replace(rows(Kind.PREFERENCE)[0], rejected=rows(Kind.PREFERENCE)[0].answer)
    assert RowCheck(training, model, "dpo")(to_line(alike, "trinity")) == "two answers of the same tokens"
    refuses = {"model": {"max_model_len": 10_000, "custom_chat_template": "{{ raise_exception('no') }}"}}
    assert RowCheck(refuses, model, "sft")(to_line(rows(Kind.SFT)[0], "trinity")) == "refused by the model's template"
