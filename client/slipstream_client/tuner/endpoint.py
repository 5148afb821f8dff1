"""Endpoints of the policy model and the auxiliary models: somewhere else, or an engine that is started here."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from slipstream_client.config import settings
from slipstream_client.tuner.config import LOCAL, TunerModelConfig
from slipstream_client.tuner.errors import TunerError
from slipstream_client.tuner.gateway import Upstream
from slipstream_client.tuner.local import installed, local_engine, model_directory
from slipstream_client.tuner.plan import Plan


@dataclass(frozen=True)
class Endpoint:
    """Addresses of the models.

    Attributes:
        url: of the Explorer or of a facade, without `/v1` and without credentials.
        headers: that go with each request to it.
        check: raises TunerError when nothing more is to be expected from it.
    """

    url: str
    headers: Mapping[str, str]
    auxiliary: Mapping[str, Upstream]
    check: Callable[[], None]


def remote(explorer_url: str | None, plan: Plan, auxiliary: Mapping[str, TunerModelConfig]) -> str | None:
    """Return the address of the Explorer or the facade, or None if the local engine is to be started.

    Raises:
        ValueError: an auxiliary model has no address, `explorer_url` is none, or the local engine cannot do what is
            asked of it.
        TunerError: there is no engine at all.
    """
    sidecar = settings()
    if explorer_url is None and sidecar.named:
        explorer_url = f"{sidecar.url}/explorer"
    if explorer_url is not None:
        for name, model in auxiliary.items():
            if not model.base_url:
                raise ValueError(
                    f"auxiliary_models[{name!r}].base_url: missing; only a local engine serves the model itself"
                )
        return _checked(explorer_url)
    if not installed():
        raise TunerError(
            "no engine to tune with: give tune() the explorer_url of an Explorer (http://host:8010) or of a sidecar's "
            "facade (http://sidecar:8100/explorer); or name the sidecar, by configure() or SLIPSTREAM_URL; or "
            "install the local engine, pip install 'slipstream-sidecar[embedded]' (without a GPU, before it: "
            "pip install torch --index-url https://download.pytorch.org/whl/cpu)"
        )
    if plan.model is None:
        raise ValueError("model: missing; the local engine needs it, here or in the file of config_path")
    if (asked := plan.algorithm.algorithm_type) not in LOCAL:
        raise ValueError(f"algorithm.algorithm_type: a local engine knows {', '.join(LOCAL)}; found {asked!r}")
    model_directory(plan.model)
    for name, model in auxiliary.items():
        if not model.base_url:
            model_directory(model, f"auxiliary_models[{name!r}]")
    return None


def _checked(explorer_url: str) -> str:
    """It may hold a key, so an error does not show it."""
    try:
        url = httpx.URL(explorer_url)
    except httpx.InvalidURL as error:
        raise ValueError(f"explorer_url: {error}") from error
    if url.scheme not in ("http", "https") or not url.host or (url.port or 0) >= 2**16:
        raise ValueError("explorer_url: expected an address such as http://host:8010")
    return explorer_url.rstrip("/")


@contextmanager
def endpoint(
    url: str | None, plan: Plan, auxiliary: Mapping[str, TunerModelConfig], seed: int | None, lock: int
) -> Iterator[Endpoint]:
    """Enter the endpoint at `url`, or else a local engine.

    Raises:
        TunerError: the local engine did not start.
    """
    elsewhere = {name: served(model) for name, model in auxiliary.items() if model.base_url}
    if url is not None:
        sidecar = settings()
        headers = sidecar.own_headers if url.startswith(f"{sidecar.url}/") else {}
        url, credentials = _apart(url)
        yield Endpoint(url, {**headers, **credentials}, elsewhere, lambda: None)
        return
    frozen = {name: model for name, model in auxiliary.items() if not model.base_url}
    with local_engine(plan, frozen, seed, lock) as engine:
        here = {
            name: Upstream(f"{engine.auxiliary[name]}/v1", engine.models[name], defaults(model))
            for name, model in frozen.items()
        }
        yield Endpoint(engine.url, {}, {**elsewhere, **here}, engine.check)


def defaults(model: TunerModelConfig | None) -> dict[str, Any]:
    """Return the fields that requests get if a workflow does not set them."""
    if model is None:
        return {}
    said: dict[str, Any] = {
        "temperature": model.temperature,
        "top_p": model.top_p,
        "max_tokens": min(model.max_tokens, model.max_model_len - 1),
    }
    if model.enable_thinking is not None:
        said["chat_template_kwargs"] = {"enable_thinking": model.enable_thinking}
    return said


def served(model: TunerModelConfig) -> Upstream:
    """A model that somebody else serves: only what its configuration says goes with requests, whatever it knows.

    Raises:
        ValueError: its address is none.
    """
    said = {name: value for name, value in defaults(model).items() if name in model.model_fields_set}
    if model.enable_thinking is not None:
        said["chat_template_kwargs"] = {"enable_thinking": model.enable_thinking}
    headers = {"authorization": f"Bearer {model.api_key}"} if model.api_key else {}
    try:
        url, credentials = _apart(str(model.base_url).rstrip("/"))
    except httpx.InvalidURL as error:
        raise ValueError(f"base_url of {model.model_path}: {error}") from error
    return Upstream(url, model.model_path, said, {**headers, **credentials})


def _apart(address: str) -> tuple[str, dict[str, str]]:
    """The address without its credentials, and the header that says them: httpx logs each request's whole address."""
    url = httpx.URL(address)
    if not url.userinfo:
        return address, {}
    basic = base64.b64encode(f"{url.username}:{url.password}".encode()).decode()
    return str(url.copy_with(userinfo=b"")), {"authorization": f"Basic {basic}"}
