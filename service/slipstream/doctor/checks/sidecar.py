"""Checks of `sidecar.yaml` against the other two files."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterator
from urllib.parse import SplitResult, urlsplit

from sqlalchemy.engine import URL, make_url

from slipstream.access.settings import Role, is_loopback
from slipstream.doctor.files import Files
from slipstream.doctor.findings import Finding, Problem
from slipstream.settings.types import database_url, shown_url

_CONNECTIONS = 100
"""Connections that Trinity's proxy opens to its engines, all together."""
_USUAL_REWARD = 1.0

WRONG_ADDRESS = Problem(
    "files.explorer_address_wrong",
    "error",
    why="The sidecar asks at an address where the Explorer does not listen: no run, no feedback and no commit arrives.",
    fix="`explorer.base_url` from the Explorer's `listen_address` and `proxy_port`: http://ADDRESS:PORT, without /v1.",
)
OTHER_PORT = Problem(
    "files.explorer_port_differs",
    "warning",
    why="The sidecar asks at another port than the one that the Explorer listens on. That is right only where "
    "something between them (a Service, a port mapping) maps one to the other.",
    fix="The port of the Explorer's `proxy_port` in `explorer.base_url`, unless it is mapped.",
)
WRONG_MODEL = Problem(
    "files.policy_name_wrong",
    "error",
    why="The Explorer knows its model by `model_path` alone, and answers 404 to any other name: every run is refused.",
    fix="`explorer.model: null` (its own list is asked), or exactly the Explorer's `model.model_path`.",
)
OTHER_HISTORY = Problem(
    "files.history_differs",
    "warning",
    why="The sidecar repairs there what a restart of the Explorer lost of the facade's rewards. The Explorer keeps its "
    "history in another database: nothing is repaired.",
    fix="`explorer.history_url`: the database of the Explorer's `explorer.db_url`, by aiosqlite or asyncpg.",
)
PRODUCTION_IS_US = Problem(
    "files.production_is_the_sidecar",
    "error",
    why="The sidecar would send production's traffic to itself, until nothing answers.",
    fix="`production.base_url`: the model that answers your users.",
)
PRODUCTION_IS_POLICY = Problem(
    "files.production_is_the_explorer",
    "warning",
    why="Users are answered by the policy model itself: its temperature is forced, its answers fail while it reloads, "
    "and an answer of production is recorded twice.",
    fix="`production.base_url`: the model that answers your users.",
)
TOO_MANY_CALLS = Problem(
    "files.too_many_concurrent_runs",
    "warning",
    why="Trinity's proxy opens at most 100 connections to its engines. Further calls wait inside it and end in a 504.",
    fix="`runs.concurrency` and `facade.concurrency` of 100 at most, together.",
)
GIVES_UP_FIRST = Problem(
    "files.explorer_gives_up_first",
    "warning",
    why="The Explorer ends a call after `synchronizer.sync_timeout` with a 504: the sidecar's longer `runs.timeout` "
    "is never used, and long answers are tried again and again.",
    fix="A `synchronizer.sync_timeout` of the Explorer above `runs.timeout`.",
)
RETENTION = Problem(
    "files.retention_too_short",
    "error",
    why="What is captured is deleted after `capture.retention`. Here that is before it can be scored and committed.",
    fix="A `capture.retention` well above capture.task_idle + rewards.grace + the time between two commits.",
)
NO_KEY = Problem(
    "files.open_to_everybody",
    "warning",
    why="The sidecar listens where other hosts can reach it, and asks for no key: whoever reaches it can use "
    "production's key, chat with the policy, give rewards and read what is stored.",
    fix="`access.keys` with a line of `slipstream key new --role proxy`, unless the network itself lets only your own "
    "agents in.",
)
NO_AGENT = Problem(
    "files.no_key_for_agents",
    "error",
    why="Keys are asked for, and none of them may call production: every agent is refused.",
    fix="A key of `slipstream key new --role proxy` among them, given to the agents.",
)
TRUSTS_EVERYBODY = Problem(
    "files.trusts_everybody",
    "warning",
    why="Whoever calls may say in `X-Forwarded-For` who he is, to production and in the log of refused keys.",
    fix="`access.trusted_proxies`: the addresses of your proxies alone.",
)
NO_V1 = Problem(
    "files.production_path_missing",
    "warning",
    why="An agent's /v1/chat/completions goes to /chat/completions below this address, where most services answer 404.",
    fix="`production.base_url` as an OpenAI client is given it, mostly with /v1 at its end.",
)
QUEUE_TOO_SHORT = Problem(
    "files.runs_queue_too_short",
    "error",
    why="The runs of a call are queued together or not at all: no call ever gets any.",
    fix="A `runs.queue` of many times `runs.repeat_time`.",
)
NOTHING_SELECTED = Problem(
    "files.nothing_selected",
    "warning",
    why="No task is ever trained on.",
    fix="A `capture.rate` and a `selection` that take something (docs/selection.md).",
)
NOTHING_SCORED = Problem(
    "files.nothing_scored",
    "warning",
    why="Without a calculator no run gets a reward, so the policy answers for nothing. It is right only where each "
    "answer of the policy gets a posted reward.",
    fix="`rewards.calculators`: what a good answer is (docs/rewards.md), such as [agreement].",
)
LARGE_REWARDS = Problem(
    "files.rewards_large",
    "warning",
    why="A reward is, by convention, from 0 to 1. Algorithms that do not normalise (opmd, asymre, topr, ppo) take a "
    "step as large as the reward, and a single one may undo what was learned.",
    fix="`rewards.clip: [0, 1]`, and calculators whose weights fit it.",
)


def explorer_address(files: Files) -> Iterator[Finding]:
    url, where = urlsplit(files.sidecar.explorer.base_url), files.in_sidecar("explorer.base_url")
    listens, port = files.explorer.text("explorer.listen_address"), files.explorer.whole("explorer.proxy_port")
    found = f"{files.sidecar.explorer.base_url}; the Explorer listens on {listens}:{port}"
    nearby = _is_loopback(url.hostname) or url.hostname == listens
    encrypted = nearby and url.scheme != "http"  # the Explorer speaks no TLS
    if (
        "/v1/" in f"{url.path}/"
        or (_is_loopback(listens) and not nearby)
        or _misses(listens, url.hostname)
        or encrypted
    ):
        yield WRONG_ADDRESS.at(where, found)
    elif _port(url) != port:
        yield (WRONG_ADDRESS if nearby else OTHER_PORT).at(where, found)


def policy_name(files: Files) -> Iterator[Finding]:
    given, path = files.sidecar.explorer.model, files.explorer.text("model.model_path")
    if given is not None and given != path:
        yield WRONG_MODEL.at(files.in_sidecar("explorer.model"), f"{given}; the Explorer's model_path is {path}")


def history(files: Files) -> Iterator[Finding]:
    given = files.sidecar.explorer.history_url
    kept = files.explorer.text("explorer.db_url") or f"sqlite:///{files.explorer.job_dir}/buffer/proxy_history.db"
    if given is not None and (url := database_url(kept)) is not None and not _same_database(make_url(given), url):
        found = f"{shown_url(given)}; the Explorer's is {shown_url(kept)}"
        yield OTHER_HISTORY.at(files.in_sidecar("explorer.history_url"), found)


def production(files: Files) -> Iterator[Finding]:
    url, listen = urlsplit(files.sidecar.production.base_url), files.sidecar.listen
    where = files.in_sidecar("production.base_url")
    if _port(url) == listen.port and (_is_loopback(url.hostname) or url.hostname == listen.host):
        yield PRODUCTION_IS_US.at(where, f"{files.sidecar.production.base_url}; listen is {listen.host}:{listen.port}")
    if not url.path:
        yield NO_V1.at(where, files.sidecar.production.base_url)
    explorer = urlsplit(files.sidecar.explorer.base_url)
    same = url.hostname == explorer.hostname or (_is_loopback(url.hostname) and _is_loopback(explorer.hostname))
    if same and _port(url) == _port(explorer):
        yield PRODUCTION_IS_POLICY.at(where, f"{files.sidecar.production.base_url}, the address of explorer.base_url")


def limits(files: Files) -> Iterator[Finding]:
    runs, sync = files.sidecar.runs, files.explorer.whole("synchronizer.sync_timeout")
    if runs.queue < runs.repeat_time:
        yield QUEUE_TOO_SHORT.at(
            files.in_sidecar("runs.queue"), f"{runs.queue}; runs.repeat_time is {runs.repeat_time}"
        )
    if runs.concurrency + files.sidecar.facade.concurrency > _CONNECTIONS:
        found = f"{runs.concurrency} and {files.sidecar.facade.concurrency}"
        yield TOO_MANY_CALLS.at(files.in_sidecar("runs.concurrency", "facade.concurrency"), found)
    if sync < runs.timeout:
        where = files.explorer.at("synchronizer.sync_timeout")
        yield GIVES_UP_FIRST.at(where, f"{sync} s; runs.timeout of the sidecar is {runs.timeout:g} s")


def access(files: Files) -> Iterator[Finding]:
    settings = files.sidecar
    if not settings.access.asked_for and not is_loopback(settings.listen.host):
        yield NO_KEY.at(files.in_sidecar("access.insecure"), f"true, with listen: {settings.listen.host}")
    if settings.access.keys and settings.access.keys_file is None:
        yield from no_agent_gets_in(
            files.in_sidecar("access.keys"), {r for key in settings.access.keys for r in key.roles}
        )
    if any(network.prefixlen == 0 for network in settings.access.trusted_proxies):
        found = ", ".join(map(str, settings.access.trusted_proxies))
        yield TRUSTS_EVERYBODY.at(files.in_sidecar("access.trusted_proxies"), found)


def no_agent_gets_in(where: str, roles: Collection[Role]) -> Iterator[Finding]:
    """
    Args:
        roles: what all keys together may do.
    """
    if not {"proxy", "admin"} & set(roles):
        yield NO_AGENT.at(where, f"keys with the roles {', '.join(sorted(roles))}" if roles else "no key at all")


def retention(files: Files) -> Iterator[Finding]:
    settings = files.sidecar
    replay = settings.runs.replay_timeout if settings.runs.mode == "webhook" else 0.0
    commit = settings.commit
    needed = settings.capture.task_idle + replay + settings.rewards.grace + commit.longest_wait
    if settings.capture.retention <= needed:
        timer = "commit.interval" if commit.schedule is None else "the longest gap of commit.schedule"
        parts = f"task_idle, {'runs.replay_timeout, ' if replay else ''}grace and {timer}"
        found = f"{settings.capture.retention:g} s; {parts} make {needed:g} s"
        yield RETENTION.at(files.in_sidecar("capture.retention"), found)


def selection(files: Files) -> Iterator[Finding]:
    sampling = files.sidecar.selection.sampling
    if files.sidecar.capture.rate == 0:
        yield NOTHING_SELECTED.at(files.in_sidecar("capture.rate"), "0")
    elif sampling is not None and sampling.rate == 0:
        yield NOTHING_SELECTED.at(files.in_sidecar("selection.sampling.rate"), "0")


def rewards(files: Files) -> Iterator[Finding]:
    settings = files.sidecar.rewards
    if not settings.calculators:
        yield NOTHING_SCORED.at(files.in_sidecar("rewards.calculators"), "an empty list")
    if max(map(abs, settings.clip)) > _USUAL_REWARD:
        yield LARGE_REWARDS.at(files.in_sidecar("rewards.clip"), f"[{settings.clip[0]:g}, {settings.clip[1]:g}]")


def _same_database(one: URL, other: URL) -> bool:
    """By its name alone: a host may have another one where the other service runs."""
    return (one.get_backend_name(), one.database) == (other.get_backend_name(), other.database)


def _port(url: SplitResult) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


def _is_loopback(host: str | None) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


def _misses(listens: str, host: str | None) -> bool:
    """Return whether the Explorer does not answer at a loopback address: a server on one address has no other, and one
    on all of IPv6 has none of IPv4."""
    try:
        address, asked = ipaddress.ip_address(listens), ipaddress.ip_address(host or "")
    except ValueError:  # a name: localhost stands for both
        return False
    return asked.is_loopback and (address.version != asked.version or not (address.is_unspecified or address == asked))
