"""Runs in Trinity's environment, with files as arguments: does Trinity's own loader accept each, and its validators?

Prints one line of JSON: by file, the error in words, or null. Left out is the validator that asks a Ray cluster for
its GPUs, unless the file gives their number, as ours do.
"""

from __future__ import annotations

import json
import sys
import traceback

import serve_trinity  # noqa: F401 - Trinity needs the names that it stands in for
from trinity.common.config import load_config
from trinity.common.config_validator import validators


def error(path: str) -> str | None:
    try:
        config = load_config(path)
        for validator in validators:
            validator.validate(config)
    except Exception:  # noqa: BLE001 - whatever Trinity raises is the answer
        return traceback.format_exc(limit=-3)
    return None


if __name__ == "__main__":
    print(json.dumps({path: error(path) for path in sys.argv[1:]}))
