"""The same bytes to the proxy and to other servers: what reaches an upstream is what the others read, too.

`SLIPSTREAM_FUZZ=20000` does more cases, and `SLIPSTREAM_FUZZ_SEED` others.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from pathlib import Path

import pytest
from reading import read_requests
from references import LONG_QUIET, Read, nginx, node, read_by, uvicorn_h11
from seeds import REQUESTS
from strict import path_of, rig
from test_raw_fuzz import SEED, mutated

pytestmark = pytest.mark.slow

CASES = int(os.environ.get("SLIPSTREAM_FUZZ", "1000"))

METHODS = {b"GET", b"POST", b"HEAD", b"DELETE"}

KNOWN = {
    "host": "Each upstream gets a Host of the proxy's own, so that one with none, two, or a strange one is taken.",
    "expect": "Another expectation than 100-continue is ignored, as RFC 9110, 10.1.1, allows. Node refuses it.",
    "close": "nginx ends the connection wherever `close` is a part of a Connection field, and not a word of it.",
    "kept": "HTTP/1.0 with keep-alive is kept open. h11 ends the connection.",
    "upgrade": "An offer of another protocol is ignored (RFC 9110, 7.8). Node reads nothing behind it.",
    "follows": "What follows is no request. The proxy answers the one before it; others may end at once.",
    "blank": "Empty lines before a request are skipped (RFC 9112, 2.2). h11 refuses the request.",
    "spaces": "Two spaces in a request line are one to each reader that takes them. h11 takes none.",
}
"""Reasons for which another server refuses a request that the proxy passes on. Nothing else may be refused, and nothing
at all may be read differently."""


def reasons(data: bytes) -> Iterator[str]:
    row = read_requests(data)
    for message in row.messages:
        hosts = message.values(b"host")
        if message.version == b"1.1" and (len(hosts) != 1 or not re.fullmatch(rb"[a-z0-9.:-]+", hosts[0], re.I)):
            yield "host"
        if message.values(b"expect") not in ([], [b"100-continue"]):
            yield "expect"
        if b"close" in b" ".join(message.values(b"connection")):
            yield "close"
        if message.version == b"1.0":
            yield "kept"
        if message.values(b"upgrade"):
            yield "upgrade"
        if not message.kept or message.first[0] not in METHODS:  # then all that follows is none
            yield "follows"
    if row.state != "clean":
        yield "follows"
    if row.blank:
        yield "blank"
    if re.search(rb"^[A-Z]+ [^\r\n]*  |^[A-Z]+  ", data, re.M):
        yield "spaces"


def cases() -> list[bytes]:
    made = []
    for number in range(CASES):
        dice = random.Random(f"{SEED}-reference-{number}")
        data = mutated(dice.choice(REQUESTS), REQUESTS, dice)
        made.append(data + dice.choice(REQUESTS) if dice.random() < 0.3 else data)
    return [data for data in made if data]


def through_the_proxy(made: list[bytes]) -> list[list[Read]]:
    """The requests that reached an upstream, of each case."""
    with rig(idle_timeout=10, first_byte_timeout=10) as proxy:
        struck = [proxy.strike(data, patience=0.3) for data in made]
    return [[(*got.message.first, got.message.body) for got in one.arrived] for one in struck]


def in_origin_form(read: list[Read]) -> list[Read]:
    """Requests by path and query, without a fragment, which no request should have."""
    made = []
    for method, target, body in read:
        path = target.partition(b"#")[0]
        made.append((method, path_of(path) if path.lower().startswith((b"http://", b"https://")) else path, body))
    return made


def differences(passed: list[Read], read: list[Read]) -> Iterator[str]:
    """Yield `refused` or `different` for what the proxy passed on and the other server did not read."""
    mine, others = in_origin_form(passed), in_origin_form(read)
    for how, _, last, _, _ in SequenceMatcher(None, mine, others, autojunk=False).get_opcodes():
        if how == "delete":
            yield "refused"
        elif how == "replace" or (how == "insert" and last < len(mine)):  # at the end the proxy itself refused it
            yield "different"


def unknown(data: bytes, passed: list[Read], read: list[Read]) -> bool:
    """Return whether there is a difference without a known reason."""
    found = set(differences(passed, read))
    return "different" in found or ("refused" in found and not set(reasons(data)) & set(KNOWN))


async def test_what_reaches_an_upstream_is_what_other_servers_read(tmp_path: Path) -> None:
    made = cases()
    ours = await asyncio.to_thread(through_the_proxy, made)
    assert sum(map(len, ours)) > CASES / 5
    found = []
    async with contextlib.AsyncExitStack() as stack:
        for server in (node(), uvicorn_h11(), nginx(tmp_path)):
            reference = await stack.enter_async_context(server)
            for data, passed, read in zip(made, ours, await read_by(reference, made), strict=True):
                if unknown(data, passed, read):
                    again = await reference.reads(data, LONG_QUIET)
                    if unknown(data, passed, again):
                        found.append(f"{reference.name}: {data!r}\n  passed on: {passed}\n  read: {again}")
    assert not found, "\n".join(found[:20])


def test_a_request_that_is_read_differently_is_found() -> None:
    first, second = (b"POST", b"/v1/x", b"ab"), (b"GET", b"/v1/y", b"")
    smuggled = (b"GET", b"/v1/smuggled", b"")
    assert set(differences([first, second], [first, second])) == set()
    assert set(differences([first], [first, second])) == set(), "the proxy refused the second"
    assert set(differences([first, second], [second])) == {"refused"}
    assert set(differences([first, second], [(b"POST", b"/v1/x", b"a"), second])) == {"different"}
    assert set(differences([first, second], [first, smuggled, second])) == {"different"}
