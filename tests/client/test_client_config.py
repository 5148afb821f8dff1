"""Where the client takes the sidecar's address from, and what it says of one that is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trustme
from authorities import Authority
from serving import serving
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import slipstream_client as slipstream


def test_the_address_is_the_one_that_slipstream_serve_listens_on() -> None:
    assert slipstream.settings().url == "http://127.0.0.1:8100"


def test_the_environment_says_where_and_configure_goes_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPSTREAM_URL", "http://sidecar:8100/v1/")
    monkeypatch.setenv("SLIPSTREAM_API_KEY", "from-the-environment")

    assert slipstream.settings().base_url == "http://sidecar:8100/v1"
    assert slipstream.settings().api_key == "from-the-environment"
    assert slipstream.configure("https://other/slipstream/", api_key="given").url == "https://other/slipstream"
    assert slipstream.settings().api_key == "given"
    assert "given" not in repr(slipstream.settings())


@pytest.mark.parametrize(
    "url",
    ["127.0.0.1:8100", "ftp://host", "http://", "http://host:port", "http://h/?a=b", "", 7, " https://h", "https://h\n",
     "http://h :8100", "http://h/a\tb"],
)  # fmt: skip
def test_an_address_that_is_none_is_refused_by_name(url: Any) -> None:
    with pytest.raises(ValueError, match=r"^url: expected the sidecar's address"):
        slipstream.configure(url)


def test_a_secret_in_the_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(ValueError, match=r"^url: expected an address without user and password") as refused:
        slipstream.configure("http://user:hunter2@127.0.0.1:8100")
    assert "hunter2" not in str(refused.value)


def test_the_variable_is_named_where_it_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPSTREAM_URL", "sidecar:8100")
    with pytest.raises(ValueError, match=r"^SLIPSTREAM_URL: expected"):
        slipstream.settings()


def test_a_scheme_and_a_host_are_the_same_in_any_case() -> None:
    assert slipstream.configure("HTTPS://Sidecar:8100/Team/v1").url == "https://sidecar:8100/Team"


async def test_a_certificate_of_no_known_authority_is_refused_however_the_scheme_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[str] = []

    async def commit(request: Request) -> JSONResponse:
        asked.append(request.url.path)
        return JSONResponse({})

    app = Starlette(routes=[Route("/commit", commit, methods=["POST"])])
    files = Authority(trustme.CA(), tmp_path).issue()
    async with serving(app, ssl_certfile=files["certificate"], ssl_keyfile=files["key"]) as url:
        monkeypatch.setenv("SLIPSTREAM_URL", url.replace("https", "HTTPS"))
        with pytest.raises(slipstream.SidecarAway, match="CERTIFICATE_VERIFY_FAILED"):
            await slipstream.async_commit()
    assert asked == []


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), "5", True])
def test_a_timeout_is_seconds(timeout: Any) -> None:
    with pytest.raises(ValueError, match=r"^timeout: expected seconds above 0"):
        slipstream.configure(timeout=timeout)
