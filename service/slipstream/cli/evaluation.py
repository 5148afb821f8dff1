"""`slipstream evaluate`: a version on the cases of a suite, or a report on several models."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slipstream.cli.options import SIDECAR_FILE, Config, OperatorKey, Url

if TYPE_CHECKING:
    from slipstream.evaluation.reports.document import Report
    from slipstream.evaluation.reports.making import Plan
    from slipstream.evaluation.reports.request import Request
    from slipstream.settings.sidecar import Settings

commands = typer.Typer()

_REPORT = "A report on models"


def _option(*names: str, **about: Any) -> Any:
    return typer.Option(*names, rich_help_panel=_REPORT, show_default=False, **about)


@commands.command()
def evaluate(
    version: Annotated[
        str | None,
        typer.Argument(
            metavar="[VERSION]",
            help="Its number, or an alias (default: the one that the Explorer serves).",
            show_default=False,
        ),
    ] = None,
    suite: Annotated[
        str | None, typer.Option(help="One of evaluation.suites (default: the only one).", show_default=False)
    ] = None,
    wait: Annotated[bool, typer.Option(help="Wait until it has ended, and show the result.")] = True,
    url: Url = None,
    config: Config = SIDECAR_FILE,
    key: OperatorKey = None,
    model: Annotated[
        list[str] | None,
        _option("--model", help="production[:MODEL], version:NUMBER, policy, or http://HOST/v1#MODEL; give several."),
    ] = None,
    cases: Annotated[Path | None, _option("--cases", help="A JSONL file of cases.")] = None,
    held_out: Annotated[
        str | None,
        _option("--held-out", help="The folder of a data set, or `live` for sessions that no version was trained on."),
    ] = None,
    sessions: Annotated[int | None, _option("--sessions", min=1, max=10_000, help="Of --held-out live; 200.")] = None,
    benchmark: Annotated[
        str | None, _option("--benchmark", help="bfcl[:CATEGORY,...] or reasoning-gym:NAME[:SIZE[:SEED]].")
    ] = None,
    report: Annotated[Path | None, _option("--report", help="The folder for report.html, .md and .json.")] = None,
    metrics: Annotated[list[str] | None, _option("--metrics", help="Some of them, with commas (default: all).")] = None,
    against: Annotated[
        str | None, _option("--against", help="The model that others are compared with (default: the first).")
    ] = None,
    fail_under: Annotated[
        list[str] | None, _option("--fail-under", help="METRIC=VALUE: exit code 1 if a mean is below; give several.")
    ] = None,
    fail_worse: Annotated[
        bool,
        _option(
            "--fail-worse",
            help="Exit code 1 if a model is worse in the first metric: if the whole interval is below 0.",
        ),
    ] = False,
    fail_margin: Annotated[
        float | None, _option("--fail-margin", min=0, help="Of --fail-worse: so much worse is allowed; 0.")
    ] = None,
    repeat: Annotated[int, _option("--repeat", min=1, max=100, help="How often each case is asked.")] = 1,
    parameters: Annotated[str | None, _option("--parameters", help="Fields of each request, as a JSON object.")] = None,
    limit: Annotated[int | None, _option("--limit", min=1, help="So many of the cases, always the same ones.")] = None,
    concurrency: Annotated[
        int | None, _option("--concurrency", min=1, max=256, help="Cases at once (default: evaluation.concurrency).")
    ] = None,
    max_requests: Annotated[
        int, _option("--max-requests", min=1, help="Calls of models at most, judges' included; 1000.")
    ] = 1000,
    model_key_from: Annotated[
        str | None, _option("--model-key-from", help="The environment variable with the key of models named by a URL.")
    ] = None,
    compare: Annotated[
        tuple[Path, Path] | None, _option("--compare", help="Two reports that were made before.")
    ] = None,
) -> None:
    """Ask a version the cases of a suite, and compare it with production and the champion. With --model or --compare:
    make a report on models."""
    from slipstream.evaluation.reports.request import Request

    asked = Request(
        models=tuple(model or ()), cases=cases, held_out=held_out, sessions=sessions, benchmark=benchmark,
        report=report, metrics=tuple(metrics or ()), against=against, fail_under=tuple(fail_under or ()),
        fail_worse=fail_worse, fail_margin=fail_margin, repeat=repeat, parameters=parameters, limit=limit,
        concurrency=concurrency, max_requests=max_requests, model_key_from=model_key_from, compare=compare,
    )  # fmt: skip
    if asked != Request():
        asked.check(version, suite)
        _report(asked, config)
        return
    from slipstream.terminal.evaluations import evaluate as run
    from slipstream.terminal.sidecar_http import address

    if not run(address(url, config, os.environ), key, version, suite, wait=wait):
        raise typer.Exit(1)


def _report(asked: Request, config: Path) -> None:
    """Make a report, write and show it; exit code 1 if a condition does not hold, or a model was away."""
    import asyncio

    from slipstream.evaluation.reports import files, making
    from slipstream.evaluation.reports.document import read_report
    from slipstream.settings.source import load_settings
    from slipstream.terminal.waiting import waiting

    wanted, measures = asked.wanted, asked.measures
    if asked.report is not None:
        files.prepare(asked.report)
    if asked.compare is not None:
        before, after = (read_report(folder) for folder in asked.compare)
        made = making.compare(before, after, making.names_of(asked.compare), measures, wanted)
    else:
        settings = load_settings(None if config == SIDECAR_FILE and not config.exists() else config, os.environ)
        plan = asked.plan(settings, os.environ)
        with waiting("the models' answers"):
            made = asyncio.run(_made(asked, plan, settings))
    if asked.report is not None:
        files.write(made, asked.report)
    if not _shown(made, asked.report):
        raise typer.Exit(1)


async def _made(asked: Request, plan: Plan, settings: Settings) -> Report:
    from slipstream.evaluation.reports import making
    from slipstream.evaluation.reports.cases import cases_of_rows
    from slipstream.evaluation.reports.request import LIVE

    if asked.held_out is None or asked.held_out == LIVE:
        cases = await asked.cases_in(settings)
    else:
        from slipstream.datasets.folder import read_rows

        rows = read_rows(Path(asked.held_out), "held_out")
        cases = cases_of_rows(Path(asked.held_out).name, ((row, row.provenance.session) for row in rows))
    return await making.make(plan, cases.limited(asked.limit), settings)


def _shown(made: Report, folder: Path | None) -> bool:
    """Print a report. Returns False if a condition does not hold, or a model was away."""
    from slipstream.evaluation.reports import wording
    from slipstream.terminal.reports import show

    print(wording.asked_text(made))
    show("", ("", *(wording.shown(model.name) for model in made.models)), wording.mean_rows(made))
    for pair in made.pairs:
        title = f"{wording.shown(pair.one)} less {wording.shown(pair.other)}"
        show(title, wording.PAIR_HEAD, wording.pair_rows(pair))
    for model in made.models:
        if model.away is not None:
            print(f"away: {wording.shown(model.name)}: {wording.shown(model.away)}")
    for condition in made.conditions:
        holds = "holds" if condition.holds else "fails"
        print(f"{holds}: {wording.shown(condition.text)} ({wording.shown(condition.found)})")
    if folder is not None:
        print(f"written: {folder}")
    return all(each.holds for each in made.conditions) and all(model.away is None for model in made.models)
