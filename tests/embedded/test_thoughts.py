"""Thoughts told apart from the answer, in whole texts and in streams."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from slipstream.embedded.completions import ChatRequest, Completion
from slipstream.embedded.engines.engine import Sampled, Sampling, Step
from slipstream.embedded.thoughts import Piece, Thoughts, parted


@pytest.mark.parametrize(
    ("text", "begun", "expected"),
    [
        ("<think>\nIt is 4?\nNo.\n</think>\n\nIt is 5.\n", False, ("It is 4?\nNo.", "It is 5.\n")),
        ("It is 4?\n</think>\n\nIt is 5.", True, ("It is 4?", "It is 5.")),
        ("<think>\n\n</think>\n\nIt is 5.", False, ("", "It is 5.")),
        (" It is 5, by <think>.", False, ("", " It is 5, by <think>.")),
        ("<think>\nIt is <4> or </thin air.\n\nSo", False, ("It is <4> or </thin air.\n\nSo", "")),
        ("\n<thi", False, ("", "\n<thi")),
        ("It is", True, ("It is", "")),
        ("<think>a</think>b</think>c", False, ("a", "b</think>c")),
        ("", False, ("", "")),
    ],
)
def test_thoughts_are_told_apart_in_pieces_of_each_size(text: str, begun: bool, expected: tuple[str, str]) -> None:
    assert parted(text, begun) == expected
    for size in (1, 2, 5, 9):
        thoughts = Thoughts(begun)
        pieces = [thoughts.add(text[at : at + size]) for at in range(0, len(text), size)]
        pieces.append(thoughts.add("", last=True))
        assert Piece(*map("".join, zip(*pieces, strict=True))) == expected


class Scripted:
    """An engine that samples the tokens of a text."""

    def __init__(self, ids: Sequence[int]) -> None:
        self.ids = ids

    async def generate(self, _prompt: Sequence[int], _sampling: Sampling) -> AsyncGenerator[Step, None]:
        for place, token_id in enumerate(self.ids, 1):
            yield Step(Sampled(token_id, -0.5, ()), "stop" if place == len(self.ids) else None, 1)


@pytest.fixture(scope="module")
def tokenizer(tokenizer_files: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(tokenizer_files)


CALL = '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]


@pytest.mark.parametrize(
    ("text", "prompt", "message"),
    [
        ("<think>\nIt is 4?\n</think>\n\nIt is 5.", "Hi", {"reasoning_content": "It is 4?", "content": "It is 5."}),
        ("It is 4?\n</think>\n\nIt is 5.", "Hi<think>\n", {"reasoning_content": "It is 4?", "content": "It is 5."}),
        ("It is 5.", "Hi", {"content": "It is 5."}),
        (f"<think>\nA {CALL}?\n</think>\n\nNo.", "Hi", {"reasoning_content": f"A {CALL}?", "content": "No."}),
        (f"<think>\n<tool_call>?\n</think>\n\nI look.\n{CALL}", "Hi",
         {"reasoning_content": "<tool_call>?", "content": "I look.", "calls": ["look"]}),
        (f"<think>\nYes.\n</think>\n\n{CALL}", "Hi",
         {"reasoning_content": "Yes.", "content": None, "calls": ["look"]}),
    ],
)  # fmt: skip
async def test_a_completion_has_the_thoughts_beside_the_answer(
    tokenizer: PreTrainedTokenizerBase, text: str, prompt: str, message: dict[str, Any]
) -> None:
    request = ChatRequest.model_validate(
        {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": TOOLS, "return_token_ids": True}
    )
    ids = tokenizer.encode(text)
    completion = Completion(request, tokenizer.encode(prompt), 99, tokenizer, 0.0, thinks=True)
    streamed: dict[str, str] = {}
    calls: list[Any] = []
    token_ids: list[int] = []
    async for entry in completion.run(Scripted(ids)):  # type: ignore[arg-type]
        for name in ("reasoning_content", "content"):
            streamed[name] = streamed.get(name, "") + entry["delta"].get(name, "")
        calls += entry["delta"].get("tool_calls", [])
        token_ids += entry["token_ids"]
    [choice] = completion.body()["choices"]
    expected = message.pop("calls", [])
    found = {name: choice["message"][name] for name in ("reasoning_content", "content") if name in choice["message"]}
    assert found == message
    assert {name: said.strip() for name, said in streamed.items() if said} == {k: v for k, v in message.items() if v}
    assert [call["function"]["name"] for call in calls] == expected
    assert len(choice["message"].get("tool_calls", [])) == len(expected)
    assert token_ids == choice["token_ids"] == ids == completion.answers()[0].response_ids.tolist()
