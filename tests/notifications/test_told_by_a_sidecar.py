"""A whole sidecar tells receivers: the one of the documentation, and one that fails for long."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from loops import RunLoop
from receiving import SECRET, Receiver
from serving import serving, until

from slipstream.config.yaml_text import parse
from slipstream.errors import ConfigError
from slipstream.settings.sidecar import Settings
from slipstream.settings.source import load_settings
from slipstream.webhooks.events import EventType

PAGE = (Path(__file__).parents[2] / "docs" / "webhooks.md").read_text(encoding="utf-8")


async def test_the_receiver_of_the_documentation_is_told_and_status_names_one_that_fails(
    run_loop: RunLoop, tmp_path: Path
) -> None:
    snippet = tmp_path / "receiver.py"
    snippet.write_text(PAGE.split("```python\n")[1].split("```")[0])
    documented = runpy.run_path(str(snippet))
    failing = Receiver(*[500] * 99)
    async with serving(documented["app"]) as good, serving(failing.app()) as bad:
        to = {"secret": SECRET, "allow_private": True}
        receivers = [{"name": "good", "url": f"{good}/hook", **to}, {"name": "bad", "url": f"{bad}/hook", **to}]
        async with run_loop(webhooks={"receivers": receivers}) as loop:
            assert (await loop.client.post("/serving/kill")).status_code == 200
            [event] = (await until(lambda: documented["seen"])).values()
            assert event["type"] == "serving.killed"

            async def noted() -> bool:
                return [each["error"] for each in (await loop.status())["webhooks"]] == [None, "HTTP 500"]

            await until(noted)
            [none, waits] = (await loop.status())["webhooks"]
            assert (none["receiver"], none["waiting"], none["oldest_seconds"]) == ("good", 0, None)
            assert (waits["receiver"], waits["waiting"]) == ("bad", 1)
            metrics = (await loop.client.get("/metrics")).text
            assert 'slipstream_webhook_deliveries_total{outcome="delivered",receiver="good"} 1.0' in metrics
            assert 'slipstream_webhook_waiting{receiver="bad"} 1.0' in metrics


def test_the_page_has_every_type_and_its_configuration_is_one() -> None:
    rows = re.findall(r"^\| (`[a-z]+\.[a-z_]+`.*?) \|", PAGE, re.MULTILINE)
    assert re.findall(r"`(.+?)`", " ".join(rows)) == [each.value for each in EventType]
    text = re.sub(r"\$\{.+\}", "x", PAGE.split("```yaml\n")[1].split("```")[0])
    first, second = Settings.model_validate(parse(text, "docs")).webhooks.receivers
    assert first.events == (EventType.ROLLOUT_ROLLED_BACK, EventType.SERVING_KILLED)
    assert second.events == tuple(EventType)
    assert second.url.endswith("/events/"), "as it was written"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"url": "ftp://x"}, "webhooks.receivers.0.url: expected a URL that starts with http:// or https://"),
        ({"secret": ""}, "webhooks.receivers.0.secret: expected"),
        ({"secret": "whsec_"}, "webhooks.receivers.0.secret: expected whsec_ and base64 behind it"),
        ({"name": "a b"}, "webhooks.receivers.0.name: expected"),
        ({"events": ["rollout.done"]}, "webhooks.receivers.0.events.0: expected 'version.candidate'"),
        ({"events": []}, "webhooks.receivers.0.events: expected"),
        ({"ca": "/etc/ca.pem"}, "webhooks.receivers.0: expected a url that begins with https://"),
        ({"certificate": "/c.pem"}, "webhooks.receivers.0: expected certificate and key, both or neither"),
        ({"header": "x"}, "webhooks.receivers.0.header: "),
    ],
)
def test_a_receiver_that_is_none_is_refused_by_its_field(tmp_path: Path, change: dict[str, object], told: str) -> None:
    receiver = {"name": "ops", "url": "http://hooks.example.org", "secret": "abc", **change}
    file = tmp_path / "sidecar.yaml"
    file.write_text(f"webhooks: {{receivers: [{receiver!r}]}}")
    with pytest.raises(ConfigError) as caught:
        load_settings(file, {})
    assert caught.value.problems[0].startswith(told)
    assert "abc" not in str(caught.value)


def test_two_receivers_of_one_name_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "sidecar.yaml"
    one = "{name: ops, url: 'http://hooks.example.org', secret: abc}"
    file.write_text(f"webhooks: {{receivers: [{one}, {one}]}}")
    with pytest.raises(ConfigError, match=r"receivers: expected a name of its own .* more than one ops"):
        load_settings(file, {})
