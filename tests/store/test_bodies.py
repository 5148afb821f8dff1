"""Bodies in the store."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest

from slipstream.store.bodies import pack, unpack

BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "Grüße, 你好 😀 " * 50}], "seed": 2**70, "n": 1.5}


@pytest.mark.parametrize("body", [BODY, {}, {"half a pair": "\ud800"}])
def test_a_body_comes_back_as_it_was(body: dict[str, Any]) -> None:
    assert unpack(pack(body)) == body
    assert unpack(pack(json.dumps(body).encode())) == body


def test_a_body_takes_less_room_packed() -> None:
    assert len(pack(BODY)) < len(json.dumps(BODY)) / 4


@pytest.mark.parametrize("body", [BODY, {"half a pair": "\ud800"}])
def test_what_earlier_releases_packed_is_read(body: dict[str, Any]) -> None:
    assert unpack(zlib.compress(json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass"), 1)) == body
