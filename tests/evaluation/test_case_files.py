"""Files of cases: what is read, and what each bad line is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slipstream.evaluation.cases import CasesError, read_cases


def file_of(tmp_path: Path, *lines: Any) -> Path:
    path = tmp_path / "cases.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts), encoding="utf-8")
    return path


def test_prompts_messages_and_references_are_read(tmp_path: Path) -> None:
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]
    first, second = read_cases(
        file_of(
            tmp_path,
            {"id": "a", "prompt": "2+2", "reference": 4, "session": "s", "metadata": {"level": "easy"}},
            "",
            {"id": "b", "messages": messages, "tools": [{"type": "function"}]},
        )
    )
    assert first.request == {"messages": [{"role": "user", "content": "2+2"}]}
    assert (first.metadata, first.session) == ({"level": "easy", "reference": 4}, "s")
    assert second.request == {"messages": messages, "tools": [{"type": "function"}]}
    assert (second.name, second.metadata, second.call) == ("b", {}, None)
    assert first.session != second.session, "a case without a session is one of its own"


def test_a_case_that_changed_has_another_key(tmp_path: Path) -> None:
    case = {"id": "a", "prompt": "2+2", "reference": "4"}
    [before] = read_cases(file_of(tmp_path, case))
    [again] = read_cases(file_of(tmp_path, {**case, "session": "another"}))
    [after] = read_cases(file_of(tmp_path, {**case, "reference": "5"}))
    assert before.key == again.key != after.key


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "expected JSON: "),
        ("[1]", "expected a JSON object, found list"),
        ({"prompt": "x"}, "id: "),
        ({"id": "", "prompt": "x"}, "id: "),
        ({"id": 1, "prompt": "x"}, "id: expected text, found 1"),
        ({"id": "b"}, "exactly one of messages, prompt, found none"),
        ({"id": "b", "prompt": "x", "messages": [{"role": "user"}]}, "exactly one of messages, prompt, found"),
        ({"id": "b", "prompt": ""}, "prompt: "),
        ({"id": "b", "messages": []}, "messages: "),
        ({"id": "b", "messages": [{"role": "robot"}]}, "messages.0.role: "),
        ({"id": "b", "messages": ["hello"]}, "messages.0: "),
        ({"id": "b", "prompt": "x", "session": 3}, "session: expected text, found 3"),
        ({"id": "b", "prompt": "x", "answer": "y"}, "answer: "),
        ({"id": "a", "prompt": "x"}, "id: expected one of its own, found 'a', which line 1 has"),
    ],
)
def test_a_bad_line_is_named_with_its_file_and_field(tmp_path: Path, line: Any, told: str) -> None:
    path = file_of(tmp_path, {"id": "a", "prompt": "x"}, line)
    with pytest.raises(CasesError) as refused:
        read_cases(path)
    assert str(refused.value).startswith(f"{path}: line 2: ")
    assert told in str(refused.value)


def test_many_bad_lines_are_ten_and_a_number(tmp_path: Path) -> None:
    with pytest.raises(CasesError) as refused:
        read_cases(file_of(tmp_path, *[{"id": str(number)} for number in range(25)]))
    lines = str(refused.value).splitlines()
    assert (len(lines), lines[-1]) == (11, "and 15 lines more")


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CasesError, match=r"none\.jsonl: expected a file that can be read; No such file"):
        read_cases(tmp_path / "none.jsonl")
    with pytest.raises(CasesError, match="expected from 1 to 10000 cases, found 0"):
        read_cases(file_of(tmp_path, "", ""))
    (tmp_path / "latin").write_bytes(b"\xff")
    with pytest.raises(CasesError, match="expected UTF-8; byte 0 is none"):
        read_cases(tmp_path / "latin")
