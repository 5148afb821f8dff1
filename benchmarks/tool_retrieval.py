"""Tool retrieval: is the right tool among the nearest ones, before and after a map is learned contrastively?

    PYTHONPATH=benchmarks .venv/bin/python benchmarks/tool_retrieval.py

The tools are all that the Berkeley Function Calling Leaderboard (bfcl-eval) has in its cases of one function to call.
No tool that a held-out request needs is needed by one that is learned from. Vectors are those of words, and those of
the small policy's hidden states.
"""

from __future__ import annotations

import argparse
import json
import random
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from experiments.tool_cases import fetch
from transformers import AutoModelForCausalLM, AutoTokenizer

from slipstream.embedded.row_scores import pooled
from slipstream.embedded.tool_retrieval import Fit, description, fit, recall_at, whitening, word_vectors

_CATEGORIES = ("simple_python", "simple_java", "simple_javascript", "multiple", "live_simple", "live_multiple")
_COUNTS = (1, 5, 10)
_LONGEST = 64  # tokens of a text for the policy: each costs a CPU time, and the first say what it is about


def read(wheel: Path) -> tuple[list[dict[str, Any]], list[tuple[str, int]]]:
    """All tools, each once, and the requests with the place of their tool."""
    places: dict[str, int] = {}
    tools: list[dict[str, Any]] = []
    requests: list[tuple[str, int]] = []
    with zipfile.ZipFile(wheel) as archive:
        for category in _CATEGORIES:
            cases, answers = (
                [json.loads(line) for line in archive.read(f"bfcl_eval/data/{path}").decode().splitlines()]
                for path in (f"BFCL_v4_{category}.json", f"possible_answer/BFCL_v4_{category}.json")
            )
            truths = {answer["id"]: answer["ground_truth"] for answer in answers}
            for case in cases:
                own = {}
                for tool in case["function"]:
                    text = description(tool)
                    if text not in places:
                        places[text] = len(tools)
                        tools.append(tool)
                    own[tool["name"]] = places[text]
                ((name, _),) = truths[case["id"]][0].items()
                if name in own and len(truths[case["id"]]) == 1:
                    requests.append((case["question"][0][-1]["content"], own[name]))
    return tools, requests


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=Path(".cache/models/smollm2"))
    parser.add_argument("--tools", type=int, default=1000)
    parser.add_argument("--folder", type=Path, default=Path("experiments-output/tool-use"))
    given = parser.parse_args()
    tools, requests = read(fetch(given.folder))
    chance = random.Random(0)
    kept = chance.sample(range(len(tools)), min(given.tools, len(tools)))
    renumbered = {place: number for number, place in enumerate(kept)}
    requests = [(text, renumbered[place]) for text, place in requests if place in renumbered]
    held = set(chance.sample(range(len(kept)), len(kept) * 3 // 10))
    texts = [description(tools[place]) for place in kept]
    training = [row for row, (_, place) in enumerate(requests) if place not in held]
    test = [row for row, (_, place) in enumerate(requests) if place in held]
    print(f"{len(texts)} tools, {len(training)} requests to learn from, {len(test)} of other tools held out")
    for name, vectors in (("words", word_vectors), ("policy", lambda some: _of_policy(given.model, some))):
        began = time.perf_counter()
        offered, asked = vectors(texts), vectors([text for text, _ in requests])
        embedded = time.perf_counter() - began
        _measure(name, asked, offered, [place for _, place in requests], training, test, embedded)


def _measure(
    name: str,
    asked: Any,
    offered: Any,
    right: Sequence[int],
    training: Sequence[int],
    test: Sequence[int],
    embedded: float,
) -> None:
    def told(step: str, mapped: Any, seconds: float) -> None:
        found = recall_at(mapped(asked[test]), mapped(offered), [right[row] for row in test], _COUNTS)
        recalls = "  ".join(f"recall@{count} {value:.3f}" for count, value in found.items())
        print(f"{name:8} {step:12} {recalls}  {seconds:.1f} s")

    told("cosine", lambda some: some / np.linalg.norm(some, axis=1, keepdims=True), embedded)
    began = time.perf_counter()
    white = whitening(offered, 256)
    told("whitened", white, time.perf_counter() - began)
    used = sorted({right[row] for row in training} | (set(range(len(offered))) - {right[row] for row in test}))
    place = {tool: number for number, tool in enumerate(used)}
    began = time.perf_counter()
    learned = fit(white, asked[training], offered[used], [place[right[row]] for row in training], Fit())
    told("contrastive", learned, time.perf_counter() - began)


def _of_policy(directory: Path, texts: Sequence[str]) -> Any:
    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    return pooled(model, [tokenizer.encode(text)[:_LONGEST] for text in texts])


if __name__ == "__main__":
    main()
