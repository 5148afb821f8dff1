"""A blocked write is a result that the model sees; the run goes on, is scored, and says what was blocked."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Optional, TypedDict

import pytest
from loops import RunLoop
from pydantic import BaseModel, Field

import slipstream_client as slipstream
from slipstream_client.side_effects.recording import SideEffect


class Receipt(TypedDict):
    number: int


@dataclasses.dataclass
class Result:
    ok: bool = False
    message: str | None = None


@dataclasses.dataclass
class Order:
    number: int
    message: str


class Sent(BaseModel):
    status: str = Field(min_length=1)
    tries: int = 0


class Part(BaseModel):
    type: Literal["text"]
    text: str


class Page(BaseModel):
    number: int


def said(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("This action was not carried out: write is not permitted")


SHAPES: list[tuple[Any, Callable[[Any], bool]]] = [
    (str, said),
    (Any, said),
    (None, said),
    (int, said),
    (bool, lambda result: result is False),
    (str | None, said),
    (Optional[dict[str, Any]], lambda result: said(result["error"])),  # noqa: UP045 - the old way is still written
    (Annotated[dict[str, Any], "described"], lambda result: said(result["error"])),
    (Mapping[str, Any], lambda result: said(result["error"])),
    (Receipt, lambda result: said(result["error"])),
    (list[str], lambda result: len(result) == 1 and said(result[0])),
    (Sequence[Receipt], lambda result: said(result[0]["error"])),
    (tuple[str, int], lambda result: said(result[0])),
    (Literal["sent", "refused"], said),
    (Result, lambda result: result.ok is False and said(result.message)),
    (Order, said),
    (Sent, lambda result: isinstance(result, Sent) and said(result.status)),
    (Page, said),
    (Page | Sent, lambda result: said(result.status)),
    (list[Part], lambda result: result[0].type == "text" and said(result[0].text)),
    ("NameForTypeCheckersOnly", said),
]


@pytest.mark.parametrize(("annotation", "fits"), SHAPES, ids=[str(annotation) for annotation, _ in SHAPES])
async def test_a_blocked_tool_returns_what_its_caller_can_read(annotation: Any, fits: Callable[[Any], bool]) -> None:
    def write(text: str) -> Any:
        raise AssertionError("written")

    async def write_async(text: str) -> Any:
        raise AssertionError("written")

    for function in (write, write_async):
        function.__annotations__["return"] = annotation
    plain = slipstream.tool(side_effects=True)(write)
    asynchronous = slipstream.tool(side_effects=True, name="write")(write_async)
    with slipstream.replay("order-17", 0) as run:
        assert fits(plain("a"))
        assert fits(await asynchronous("a"))
    assert run.side_effects == [SideEffect("write", "blocked")] * 2
    assert run.blocked == ("write", "write")


def test_a_tool_without_an_annotation_returns_text() -> None:
    @slipstream.tool(side_effects=True)
    def write(text):  # type: ignore[no-untyped-def]
        raise AssertionError("written")

    with slipstream.replay("order-17", 0):
        assert said(write("a"))


def test_an_error_can_be_had_instead_for_all_tools_and_for_one() -> None:
    @slipstream.tool(side_effects=True)
    def write() -> str:
        raise AssertionError("written")

    @slipstream.tool(side_effects=True, blocked="raise")
    def pay() -> str:
        raise AssertionError("paid")

    @slipstream.tool(side_effects=True, blocked="result")
    def mail() -> str:
        raise AssertionError("sent")

    with slipstream.replay("order-17", 0) as run:
        assert said(write())
        with pytest.raises(slipstream.SideEffectBlocked, match="pay has side effects"):
            pay()
        slipstream.configure(blocked_tools="raise")
        with pytest.raises(slipstream.SideEffectBlocked):
            write()
        assert "mail is not permitted" in mail()
    assert run.blocked == ("write", "pay", "write", "mail")
    for wrong in (
        lambda: slipstream.configure(blocked_tools="drop"),  # type: ignore[arg-type]
        lambda: slipstream.tool(side_effects=True, blocked="drop"),  # type: ignore[call-overload]
    ):
        with pytest.raises(ValueError, match=r"^blocked(_tools)?: expected 'result' or 'raise', found 'drop'"):
            wrong()


def test_a_runner_keeps_what_configure_said_of_blocked_tools() -> None:
    slipstream.configure(blocked_tools="raise")
    slipstream.TrainingRunner(slipstream.SamplingRate(1), url="http://127.0.0.1:9")
    assert slipstream.settings().blocked_tools == "raise"


async def test_the_run_that_made_the_wrong_write_is_scored(run_loop: RunLoop) -> None:
    """Its agent does not handle errors of its tools, as LangChain's does not."""
    runs: list[slipstream.RunResult] = []

    @slipstream.tool(side_effects=True)
    def refund(amount: int) -> str:
        return f"refunded {amount}"

    def reward(run: slipstream.RunResult) -> float:
        runs.append(run)
        return 0.0 if run.blocked else 1.0

    async with run_loop(selection={"sampling": {"rate": 0.0}}) as loop:
        slipstream.configure(loop.url)
        runner = slipstream.TrainingRunner(slipstream.SamplingRate(1), reward, repeat_time=2)
        amounts = iter([40, 40, 55])
        async with slipstream.async_openai() as client, runner:

            @runner.agent
            async def agent() -> str:
                result = await asyncio.to_thread(refund, next(amounts))
                await client.chat.completions.create(model="prod", messages=[{"role": "user", "content": result}])
                return result

            with slipstream.mark(task_id="a"):
                await agent()
        group = (await loop.client.get("/runs/a")).json()

    assert (runner.stats.finished, runner.stats.failed) == (2, {})
    assert sorted((run.blocked, run.output[:12]) for run in runs) == [
        ((), "refunded 40"),
        (("refund",), "This action "),
    ]
    told = [[effect["outcome"] for effect in run["side_effects"]] for run in group["runs"]]
    assert sorted(told) == [["blocked"], ["recorded"]]
    [delivered] = loop.explorer.committed
    assert sorted(one["reward"] for one in delivered) == [0.0, 1.0]
