"""Instructions for reading a data set, for its card: by the owner of its format."""

from __future__ import annotations

from slipstream.datasets.manifest import Manifest
from slipstream.datasets.row import Kind

_LOAD = """```python
from datasets import load_dataset

rows = load_dataset("{name}", split="train")
```

The header of this file says which files there are and what type their columns have, so name the folder, not a file.
"""
_TRL = {
    Kind.SFT: "TRL's `SFTTrainer` takes these rows as they are.",
    Kind.PREFERENCE: "TRL's `DPOTrainer` takes these rows as they are.",
    Kind.KTO: "TRL's `KTOTrainer` takes these rows as they are.",
    Kind.CORRECTION: (
        "TRL's experimental `SDPOTrainer` takes these rows with `include_environment_feedback=True`; it samples "
        "answers of its own, and does not read `completion`, which is the answer that was corrected."
    ),
}
_TRINITY = {
    Kind.SFT: """
Trinity-RFT reads it by this part of the Trainer's file:

```yaml
buffer:
  trainer_input:
    experience_buffer:
      storage_type: file
      path: {name}
      split: train
      format: {{prompt_type: messages, messages_key: messages, tools_key: tools}}
```
""",
    Kind.PREFERENCE: """
Trinity-RFT reads it by this part of the Trainer's file:

```yaml
buffer:
  trainer_input:
    experience_buffer:
      storage_type: file
      path: {name}
      split: train
      format: {{prompt_type: messages, messages_key: messages, chosen_key: chosen, rejected_key: rejected}}
```

Its DPO gives no tools to the template: they are part of the system message.
""",
}
_LLAMA_FACTORY = """
LLaMA-Factory reads it by this entry of `dataset_info.json`:

```json
{{"{name}": {{"file_name": "{name}/train.{files}", "formatting": "sharegpt", {columns}}}}}
```
"""
_COLUMNS = {
    Kind.SFT: '"columns": {"messages": "conversations", "tools": "tools"}',
    Kind.PREFERENCE: (
        '"ranking": true, "columns": {"messages": "conversations", "chosen": "chosen", "rejected": "rejected", '
        '"tools": "tools"}'
    ),
}


def how_to_read(made: Manifest) -> str:
    """Return what the card says of it, as Markdown. A name has letters, digits, `.`, `_` and `-`: it fits anywhere."""
    said = _LOAD.format(name=made.name)
    if made.format == "trl":
        return f"{said}\n{_TRL[made.kind]}\n"
    if made.format == "trinity":
        return said + _TRINITY[made.kind].format(name=made.name)
    if made.format == "sharegpt":
        return said + _LLAMA_FACTORY.format(name=made.name, files=made.files, columns=_COLUMNS[made.kind])
    return f"{said}\n`train.jsonl` is a file for OpenAI's fine-tuning as it is.\n"
