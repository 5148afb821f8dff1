"""Rows are tokenised as they are served: as the Explorer records the same conversation, token by token."""

from __future__ import annotations

import shutil
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
import trl
from serving import serving
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from slipstream.datasets.row import Kind, Provenance, Row, Source
from slipstream.embedded import explorer
from slipstream.embedded.config import EngineConfig
from slipstream.embedded.dataset_inputs import row_tokenizer
from slipstream.embedded.engines.engine import Engine, Sampled, Sampling, Step
from slipstream.embedded.experiences import ExperienceStore
from slipstream.embedded.row_tokens import LeftOut, RowTokenizer, RowTokens, end_of_turn
from slipstream.embedded.serving import create_app
from slipstream.errors import ConfigError
from slipstream.jsontext import to_json

Json = dict[str, Any]

TEMPLATES = Path(trl.__file__).parent / "chat_templates"
WEATHER: Json = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
CALLS: list[Json] = [
    {"id": f"c{city}", "type": "function", "function": {"name": "get_weather", "arguments": {"city": city}}}
    for city in ("Oslo", "Zürich")
]
SYSTEM, ASKS = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Weather in Oslo, wärme? 🙂"}
EARLIER = {"role": "assistant", "content": "", "tool_calls": [CALLS[0]], "reasoning_content": "Which sky?"}
TOLD = {"role": "tool", "tool_call_id": "cOslo", "content": '{"sky": "clear"}'}


class Template(NamedTuple):
    """A real chat template: its file in TRL, the tokens that it ends a turn and a text with, and what it can say."""

    file: str | None
    ends_turn: str
    ends_text: str
    has_system: bool = True
    has_tools: bool = True


SMOLLM2 = Template(None, "<|im_end|>", "<|im_end|>", has_tools=False)
REAL = {
    "SmolLM2": SMOLLM2,
    "Qwen2.5": Template("qwen2_5.jinja", "<|im_end|>", "<|im_end|>"),
    "Qwen3": Template("qwen3.jinja", "<|im_end|>", "<|im_end|>"),
    "Qwen3-Instruct-2507": Template("qwen3_instruct_2507.jinja", "<|im_end|>", "<|im_end|>"),
    "Llama-3": Template("llama3.jinja", "<|eot_id|>", "<|end_of_text|>", has_tools=False),
    "Gemma": Template("gemma.jinja", "<end_of_turn>", "<eos>", has_system=False, has_tools=False),
    "Phi-3": Template("phi3.jinja", "<|end|>", "<|endoftext|>", has_tools=False),
}


class Scripted(Engine):
    """An engine that samples the tokens that it is given."""

    def __init__(self) -> None:
        self.tokens: list[int] = []

    @property
    def alive(self) -> bool:
        return True

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> AsyncGenerator[Step, None]:
        for place, token in enumerate(self.tokens, 1):
            yield Step(Sampled(token, -1.0, ()), "stop" if place == len(self.tokens) else None, 0)

    def check_room(self, choices: int) -> None: ...

    async def stage(self, version: int, directory: Path) -> None: ...

    def stop(self) -> None: ...


@pytest.fixture(scope="module")
def smollm2_tokenizer(tokenizer_files: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(tokenizer_files)


def tokenizer_of(base: PreTrainedTokenizerBase, template: Template) -> tuple[PreTrainedTokenizerBase, list[int]]:
    """SmolLM2's tokenizer with the template and its tokens, and the ids that end a response."""
    tokenizer = AutoTokenizer.from_pretrained(base.name_or_path)
    tokenizer.add_special_tokens({"additional_special_tokens": [template.ends_turn, template.ends_text, "<bos>"]})
    tokenizer.add_tokens(
        ["<tool_call>", "</tool_call>", "<think>", "</think>"]
    )  # plain tokens, as in Qwen's vocabulary
    if template.file is not None:
        tokenizer.chat_template = (TEMPLATES / template.file).read_text()
        tokenizer.bos_token, tokenizer.eos_token = "<bos>", template.ends_text
    return tokenizer, tokenizer.convert_tokens_to_ids([template.ends_turn, template.ends_text])


def conversations(template: Template) -> list[tuple[list[Json], list[Json], Json]]:
    """Prompts, tools and answers that the template can say."""
    asked = [SYSTEM, ASKS] if template.has_system else [ASKS]
    text = {"role": "assistant", "content": "Clear,  and\n\ncold: −5 °C."}
    found = [(asked, [], text)]
    if template.has_tools or template is SMOLLM2:
        calls = {"role": "assistant", "content": "", "tool_calls": CALLS}
        both = {"role": "assistant", "content": "I look.", "tool_calls": CALLS[:1]}
        found += [([*asked, EARLIER, TOLD], [WEATHER], text), (asked, [WEATHER], calls), (asked, [WEATHER], both)]
    return found


def written(
    tokenizer: PreTrainedTokenizerBase, template: Template, asked: Sequence[Json], tools: Sequence[Json], answer: Json
) -> str:
    """The answer as the template itself writes it into a conversation, without the token that ends the turn."""
    if not template.has_tools:  # such a template drops calls
        cities = [call["function"]["arguments"]["city"] for call in answer.get("tool_calls", ())]
        calls = [
            f'<tool_call>\n{{"name": "get_weather", "arguments": {{"city": "{city}"}}}}\n</tool_call>'
            for city in cities
        ]
        return "\n".join(filter(None, [answer["content"], *calls]))
    whole = str(tokenizer.apply_chat_template([*asked, answer], tools=tools or None, tokenize=False))
    prompt = str(
        tokenizer.apply_chat_template(list(asked), tools=tools or None, tokenize=False, add_generation_prompt=True)
    )
    assert whole.startswith(prompt)
    return whole.removeprefix(prompt).partition(template.ends_turn)[0]


def row(asked: Sequence[Json], tools: Sequence[Json], answer: Json, **more: Any) -> Row:
    origin = Provenance("t", "s", "default", Source.POLICY)
    return Row(more.pop("kind", Kind.SFT), asked, answer, origin, tools=tools, **more)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", REAL)
async def test_a_row_has_the_tokens_that_the_explorer_records(
    name: str,
    smollm2_tokenizer: PreTrainedTokenizerBase,
    explorer_config: EngineConfig,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    template = REAL[name]
    tokenizer, ending = tokenizer_of(smollm2_tokenizer, template)
    engine = Scripted()
    monkeypatch.setattr(explorer, "load_engine", lambda *_: (engine, tokenizer))
    by_row = RowTokenizer(tokenizer, ending, explorer_config.model.context_length)
    expected, found = [], []
    async with (
        serving(create_app(explorer_config)) as url,
        httpx.AsyncClient(base_url=url, timeout=30) as client,
    ):
        for number, (asked, tools, answer) in enumerate(conversations(template)):
            text = written(tokenizer, template, asked, tools, answer)
            engine.tokens = [*tokenizer.encode(text, add_special_tokens=False), ending[0]]
            sent = [_sent(message) for message in asked]
            body = {"model": explorer_config.model.model_path, "messages": sent, "tools": tools or None}
            said = (await client.post("/v1/chat/completions", json=body)).json()
            message = said["choices"][0]["message"]
            assert bool(message.get("tool_calls")) is bool(answer.get("tool_calls")), message
            found.append(by_row.tokens(row(sent, tools, message)))
            feedback = {"msg_ids": [said["id"]], "reward": 1.0, "task_id": "t", "run_id": number}
            assert (await client.post("/feedback", json=feedback)).is_success
        assert (await client.post("/commit")).is_success
    store = ExperienceStore(explorer_config.database_url, "experience_buffer")
    expected = [
        RowTokens(experience.prompt_ids.tolist(), experience.response_ids.tolist()) for experience in store.claim(1, 1)
    ]
    store.close()

    assert len(expected) == len(conversations(template))
    assert found == expected


def _sent(message: Json) -> Json:
    """A message as a client sends it: arguments as JSON text."""
    calls = [
        {**call, "function": {**call["function"], "arguments": to_json(call["function"]["arguments"]).decode()}}
        for call in message.get("tool_calls", ())
    ]
    return {**message, "tool_calls": calls} if calls else message


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", REAL)
def test_an_answer_ends_with_the_token_that_ends_a_turn(name: str, smollm2_tokenizer: PreTrainedTokenizerBase) -> None:
    template = REAL[name]
    tokenizer, ending = tokenizer_of(smollm2_tokenizer, template)

    assert end_of_turn(tokenizer, sorted(ending)) == tokenizer.convert_tokens_to_ids(template.ends_turn)


@pytest.mark.slow
def test_thoughts_of_a_thinking_model_are_part_of_its_answer(smollm2_tokenizer: PreTrainedTokenizerBase) -> None:
    answer = {"role": "assistant", "content": "Clear.", "reasoning_content": "It was clear."}
    for name, expected in (
        ("Qwen3", "<think>\nIt was clear.\n</think>\n\nClear.<|im_end|>"),
        ("Llama-3", "Clear.<|eot_id|>"),
    ):
        tokenizer, ending = tokenizer_of(smollm2_tokenizer, REAL[name])
        found = RowTokenizer(tokenizer, ending, 512).tokens(row([ASKS], [], answer))
        assert isinstance(found, RowTokens)
        assert tokenizer.decode(found.answer) == expected


def test_thoughts_that_the_prompt_begins_are_not_begun_again(smollm2_tokenizer: PreTrainedTokenizerBase) -> None:
    tokenizer, ending = tokenizer_of(smollm2_tokenizer, SMOLLM2)
    opened = "{%- if add_generation_prompt %}<think>\n{%- endif %}{#- </think> #}"
    tokenizer.chat_template = f"{tokenizer.get_chat_template()}{opened}"
    answer = {"role": "assistant", "content": "Clear.", "reasoning_content": "It was clear."}
    found = RowTokenizer(tokenizer, ending, 512).tokens(row([ASKS], [], answer))
    assert isinstance(found, RowTokens)
    assert tokenizer.decode(found.prompt).rstrip().endswith("<think>")
    assert tokenizer.decode(found.answer) == "It was clear.\n</think>\n\nClear.<|im_end|>"


def test_a_row_that_cannot_be_trained_on_is_left_out_whole(smollm2_tokenizer: PreTrainedTokenizerBase) -> None:
    tokenizer, ending = tokenizer_of(smollm2_tokenizer, SMOLLM2)
    by_row = RowTokenizer(tokenizer, ending, 64)
    good = {"role": "assistant", "content": "Clear."}
    picture = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}
    nothing = {"role": "assistant", "content": "\n"}
    cases: list[tuple[Row, LeftOut]] = [
        (row([ASKS], [], {"role": "assistant", "content": "cold " * 64}), LeftOut.TOO_LONG),
        (row([{"role": "user", "content": "why " * 64}], [], good), LeftOut.TOO_LONG),
        (row([ASKS], [], nothing), LeftOut.NO_ANSWER),
        (row([ASKS], [], {"role": "assistant", "content": None, "refusal": "no"}), LeftOut.NO_ANSWER),
        (row([picture], [], good), LeftOut.NOT_RENDERED),
        (row([{"role": "user", "content": "half of a pair \ud83d"}], [], good), LeftOut.NOT_RENDERED),
        (row([ASKS], [], {"role": "assistant", "content": "half of a pair \ud83d"}), LeftOut.NOT_RENDERED),
        (row([ASKS], [], good, kind=Kind.PREFERENCE, rejected=nothing), LeftOut.NO_ANSWER),
        (row([ASKS], [], good, kind=Kind.PREFERENCE, rejected=good), LeftOut.SAME_ANSWERS),
    ]

    assert [by_row.tokens(each) for each, _ in cases] == [reason for _, reason in cases]
    assert isinstance(by_row.tokens(row([ASKS], [], good)), RowTokens)


def test_what_looks_like_the_end_of_a_turn_is_text_in_an_answer(smollm2_tokenizer: PreTrainedTokenizerBase) -> None:
    tokenizer, ending = tokenizer_of(smollm2_tokenizer, SMOLLM2)
    answer = {"role": "assistant", "content": "It is written <|im_end|> there."}

    found = RowTokenizer(tokenizer, ending, 512).tokens(row([ASKS], [], answer))

    assert isinstance(found, RowTokens)
    assert found.answer.count(ending[0]) == 1
    assert tokenizer.decode(found.answer) == "It is written <|im_end|> there.<|im_end|>"


@pytest.mark.parametrize(
    ("template", "said"),
    [(None, "expected a tokenizer with a chat template"), ({"tool_use": "{{ tools }}"}, "found tool_use alone in")],
)
def test_a_model_whose_template_cannot_render_a_row_is_refused(
    tiny_model: Path, tmp_path: Path, template: Any, said: str
) -> None:
    shutil.copytree(tiny_model, tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    tokenizer.chat_template = template
    for written in (tmp_path / "model").glob("chat_template*"):
        written.unlink()
    tokenizer.save_pretrained(tmp_path / "model")
    model = {"model_path": str(tmp_path / "model"), "max_model_len": 512}
    config = EngineConfig.model_validate({"mode": "train", "checkpoint_root_dir": str(tmp_path), "model": model})

    with pytest.raises(ConfigError, match=f"model.model_path: .*{said}"):
        row_tokenizer(config, tmp_path / "model")
