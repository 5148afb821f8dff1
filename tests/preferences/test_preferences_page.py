"""The examples of docs/preferences.md do what the page says."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from loops import RunLoop
from scripted import ScriptedExplorer
from serving import until

PAGE = (Path(__file__).parents[2] / "docs" / "preferences.md").read_text(encoding="utf-8")


@pytest.mark.slow
async def test_the_program_of_the_page_judges_all_pairs(run_loop: RunLoop, capsys: pytest.CaptureFixture[str]) -> None:
    program = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
    async with run_loop(ScriptedExplorer(answer="short {n}")) as loop:
        for number in range(3):
            await loop.chat(f"a long question, number {number}", {"x-slipstream-task-id": f"t{number}"})
        await until(lambda: loop.ready(3))
        code = compile(program.replace("http://127.0.0.1:8100", loop.url), "preferences.md", "exec")
        await asyncio.to_thread(exec, code, {"__name__": "example"})
        shown = [line for line in capsys.readouterr().out.splitlines() if "'chosen'" in line]
        assert len(shown) == 3
        figures = (await loop.client.get("/preferences")).json()
        assert [each["answered_by"] for each in figures["ranking"]] == ["version:0", "production"]
        assert figures["pairs"]["judged"] == 3


def test_the_table_of_figures_names_each_of_them() -> None:
    from slipstream.preferences.figures import figures

    section = PAGE.partition("## Figures")[2].partition("## ")[0]
    named = set(re.findall(r"`(\w+)`", section))
    assert named >= {"pairs", *figures([])}
