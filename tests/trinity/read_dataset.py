"""Runs in Trinity's environment with MODEL TEMPLATE FOLDER:KIND ...: data sets by Trinity's own file reader.

KIND is `sft` or `dpo`. Prints one line of JSON: by folder, of each row the text of its prompt and of what is trained.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import serve_trinity  # noqa: F401 - Trinity needs the names that it stands in for
from transformers import AutoTokenizer
from trinity.buffer.reader.file_reader import FileReader
from trinity.common.config import FormatConfig, StorageConfig
from trinity.common.constants import PromptType

ROWS = 5


def read(folder: str, kind: str, model: str, template: str) -> list[dict[str, Any]]:
    config = StorageConfig(
        name="given",
        storage_type="file",
        schema_type=kind,
        path=folder,
        split="train",
        batch_size=ROWS,
        tokenizer_path=model,
        total_epochs=1,
        enable_progress_bar=False,
        format=FormatConfig(
            prompt_type=PromptType.MESSAGES,
            messages_key="messages",
            tools_key="tools",
            chosen_key="chosen",
            rejected_key="rejected",
            chat_template=template,
        ),
    )
    text = AutoTokenizer.from_pretrained(model).decode
    found = []
    for experience in asyncio.run(FileReader(config).read()):
        if kind == "sft":
            end = experience.prompt_length
            prompt, answers = experience.tokens[:end], [experience.tokens[end:]]
        else:
            prompt, answers = experience.tokens, [experience.chosen, experience.rejected]
        found.append({"prompt": text(prompt), "answers": [text(answer) for answer in answers]})
    return found


if __name__ == "__main__":
    model, template, *folders = sys.argv[1:]
    print(json.dumps({each: read(*each.rsplit(":", 1), model, template) for each in folders}))
