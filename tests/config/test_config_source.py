"""What an operator meets: the file, the environment, and the lines that say what is wrong."""

import re
from pathlib import Path

import pytest

from slipstream.errors import ConfigError
from slipstream.settings.sidecar import Settings
from slipstream.settings.source import load_settings


@pytest.fixture
def load(tmp_path):
    def load(text="", **environ):
        path = tmp_path / "sidecar.yaml"
        path.write_text(text, encoding="utf-8")
        return load_settings(path, environ)

    return load


@pytest.fixture
def problems(load):
    def problems(text="", **environ):
        with pytest.raises(ConfigError) as caught:
            load(text, **environ)
        return caught.value.problems

    return problems


def test_without_a_file_or_with_an_empty_one_everything_has_its_default(load):
    assert load_settings(None, {"HOME": "/home/me"}) == load("") == Settings()


def test_values_are_read_with_their_units(load):
    settings = load(
        """
        listen: "[::1]:9000"
        production: {base_url: http://localhost:1234/v1/, api_key: sk-test, idle_timeout: 1500ms}
        capture: {retention: 7d, max_body: 64KiB, redact: [email, {name: order, pattern: 'ORD-\\d+'}]}
        selection: {any: [explicit_mark, {not: {has_tools: {value: false}}}]}
        commit: {interval: 5m, max_pending: 50}
        """
    )
    assert (settings.listen.host, settings.listen.port) == ("::1", 9000)
    assert settings.production.base_url == "http://localhost:1234/v1"
    assert settings.production.api_key.get_secret_value() == "sk-test"
    assert settings.production.idle_timeout == 1.5
    assert (settings.capture.retention, settings.capture.max_body) == (604800, 65536)
    assert [rule.name for rule in settings.capture.redact] == ["email", "order"]
    assert [member.explicit_mark is not None for member in settings.selection.any] == [True, False]
    assert (settings.commit.interval, settings.commit.max_pending) == (300, 50)


def test_a_sqlite_uri_is_no_second_name_of_a_store(problems):
    found = problems("store: {url: 'sqlite+aiosqlite:///file:store.db?uri=true'}")
    assert "store.url: expected the path of a SQLite file" in str(found)


def test_an_api_key_is_not_in_the_settings_text(load):
    settings = load("production: {api_key: sk-very-secret}")
    assert "sk-very-secret" not in repr(settings) + settings.model_dump_json()


def test_settings_do_not_change(load):
    with pytest.raises(ValueError, match="frozen"):
        load().runs.repeat_time = 2


def test_every_wrong_key_and_value_is_named_at_once(problems):
    assert problems(
        """
        listen: 8100
        production: {base_url: "ftp://x/v1", idle_timeout: 5 parsecs, apikey: sk-hidden}
        explorer: {base_url: "http://me:pw@x"}
        store: {url: "mysql://me:pw@host/db"}
        capture: {rate: 2, max_body: 8 miles, queue: 1.5, redact: [emial, {name: order, pattern: "("}, {}]}
        selection: {any: [{sampling: {rate: 0.1}}, {sampling: {rate: a lot, sed: 1}}]}
        runs: []
        commit: {on_shutdown: perhaps, max_pending: 0}
        log: {level: loud}
        lisen: 1
        """
    ) == (
        'listen: expected host:port, such as "127.0.0.1:8100" or "[::1]:8100"; found 8100',
        "production.base_url: expected 'http' or 'https'; found \"ftp://x/v1\"",
        'production.idle_timeout: expected a duration from 0 such as 300, "100ms", "300s", "5m", "24h" or "7d"; '
        'found "5 parsecs"',
        "production.apikey: unknown key; known here: base_url, api_key, paths, connect_timeout, first_byte_timeout, "
        "idle_timeout",
        "explorer.base_url: expected a URL without user name and password; found a value that is not shown here",
        "store.url: expected a database URL that starts with sqlite+aiosqlite:// or postgresql+asyncpg://; "
        "found a value that is not shown here",
        "capture.rate: expected less than or equal to 1; found 2",
        'capture.max_body: expected a size in bytes such as 65536, "64KiB", "8MiB" or "1MB"; found "8 miles"',
        "capture.queue: expected a valid integer, got a number with a fractional part; found 1.5",
        "capture.redact.0: expected one of api_key, password, email, phone, credit_card, ip, {name, pattern} or "
        "{python}; found emial",
        'capture.redact.1.pattern: expected a valid regular expression; found "("',
        "capture.redact.2.name: needed, and not given",
        'selection.any.1.sampling.rate: expected a valid number, unable to parse string as a number; found "a lot"',
        "selection.any.1.sampling.sed: unknown key; known here: rate, seed",
        "runs: expected a mapping; found an empty list",
        "commit.max_pending: expected greater than or equal to 1; found 0",
        'commit.on_shutdown: expected a valid boolean, unable to interpret input; found "perhaps"',
        "log.level: expected 'debug', 'info', 'warning' or 'error'; found \"loud\"",
        "lisen: unknown key; known here: listen, access, proxy, production, explorer, store, audit, capture, "
        "selection, runs, rewards, feedback, preferences, commit, facade, serving, rollouts, evaluation, datasets, "
        "webhooks, costs, otel, limits, isolation, log",
    )


@pytest.mark.parametrize(
    "text",
    [
        "production: {api_key: [sk-s3cr3t-1234567890]}",
        "production: {api_key: 99887766554433}",
        "access: {keys: [{name: a, roles: [proxy], key: slp_s3cr3t}]}",
        "access: {keys: [{name: a, roles: [proxy], hash: slp_s3cr3t}]}",
        "access: {keys: [slp_s3cr3t]}",
        "access: {keys: slp_s3cr3t}",
        "production: {apikey: sk-s3cr3t-1234567890}",
        "production: {idle_timeout: sk-s3cr3t-1234567890}",
        "store: {url: 'postgresql://me:99887766554433@host/db'}",
        "production: {api_key: 'sk-s3cr3t-1234567890}",
        "production: {api_key: sk-s3cr3t-1234567890: 3}",
        "production: {api_key: *s3cr3t}",
        "production: {api_key: !s3cr3t}",
        "production: {api_key: !s3cr3t!x}",
        "store: {url: 'postgresql://me:s3/cr3t99887766554433@host/db'}",
        "rewards: {calculators: [{webhook: {url: 'http://x', headers: 'X-Secret: s3cr3t'}}]}",
    ],
)
def test_a_secret_is_never_in_an_error(problems, text):
    told = "\n".join(problems(text))
    assert "s3cr3t" not in told
    assert "99887766554433" not in told


def test_a_long_value_is_cut(problems):
    (line,) = problems(f"log: {{format: {'x' * 5000}}}")
    assert len(line) < 200


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("runs:\n  timeout: 3\n  queue: 1\n  timeout: 4\n", ":4:3: the key timeout is given twice"),
        ("runs: {queue: 1, queue: 2}", ":1:18: the key queue is given twice"),
        ("runs:\n\ttimeout: 3\n", ":2:1: while scanning for the next token, found character"),
        ("runs: [1\nlog: {}\n", ":2:4: while parsing a flow sequence, expected ',' or ']'"),
        ("log: {level: *other}", ":1:14: found undefined alias"),
        ("log: {? {a: b} : c}", ":1:9: a key is expected to be text"),
        ("log: !!python/object:os.system {}", ":1:6: could not determine a constructor"),
        ("- 1", ": expected a mapping of sections such as `production:`"),
        ("just text", ": expected a mapping of sections such as `production:`"),
        ("log: {level: \x07}", ": not YAML (special characters are not allowed)"),
    ],
)
def test_bad_yaml_is_told_with_line_and_column(problems, tmp_path, text, told):
    (line,) = problems(text)
    assert line.startswith(f"{tmp_path / 'sidecar.yaml'}{told}")


def test_a_file_that_cannot_be_read_says_so(tmp_path):
    with pytest.raises(ConfigError, match=r"nothing\.yaml: no such file"):
        load_settings(tmp_path / "nothing.yaml", {})
    with pytest.raises(ConfigError, match=r"cannot be read \(Is a directory\)"):
        load_settings(tmp_path, {})
    (tmp_path / "latin.yaml").write_bytes(b"log: \xff")
    with pytest.raises(ConfigError, match=r"latin\.yaml: expected text in UTF-8"):
        load_settings(tmp_path / "latin.yaml", {})


def test_references_stand_for_variables_anywhere(load):
    settings = load(
        """
        # ${IN_A_COMMENT} is not looked at
        production: {base_url: http://${HOST}:${PORT:-8000}/v1, api_key: ${KEY}}
        explorer: {model: "${MODEL:-}"}
        capture: {redact: ["${KIND:-email}"], queue: ${QUEUE}}
        """,
        HOST="models.local",
        KEY="sk-'{: #strange",
        QUEUE="17",
    )
    assert settings.production.base_url == "http://models.local:8000/v1"
    assert settings.production.api_key.get_secret_value() == "sk-'{: #strange"
    assert settings.explorer.model is None
    assert settings.capture.redact[0].name == "email"
    assert settings.capture.queue == 17


def test_an_empty_variable_takes_the_default(load):
    assert load("log: {level: ${LEVEL:-debug}}", LEVEL="").log.level == "debug"


def test_an_empty_api_key_is_none(load):
    assert load("production: {api_key: ${OPENAI_API_KEY:-}}").production.api_key is None
    assert load("production: {api_key: ${OPENAI_API_KEY}}", OPENAI_API_KEY="").production.api_key is None


def test_missing_variables_are_named_with_their_keys(problems):
    assert problems(
        """
        production: {api_key: ${OPENAI_API_KEY}}
        capture: {redact: [email, "${KIND}"]}
        log: {level: ${no name}}
        """
    ) == (
        "production.api_key: the variable OPENAI_API_KEY is not set (${OPENAI_API_KEY:-} would allow that)",
        "capture.redact.1: the variable KIND is not set (${KIND:-} would allow that)",
        "log.level: expected ${NAME}, ${NAME:-default}, ${file:PATH} or ${file:PATH:-default}; found ${no name}",
    )


def test_a_file_reference_stands_for_the_text_of_a_file(load, tmp_path):
    (tmp_path / "key").write_text("sk-'{: #strange ${HOME}\n")
    (tmp_path / "empty").write_text("\n")
    settings = load(
        f"""
        production: {{api_key: "${{file:{tmp_path}/key}}"}}
        explorer: {{model: "${{file:{tmp_path}/empty}}"}}
        log: {{level: "${{file:{tmp_path}/none:-debug}}", format: "${{file:{tmp_path}/empty:-console}}"}}
        """,
        HOME="/home/me",
    )
    assert settings.production.api_key.get_secret_value() == "sk-'{: #strange ${HOME}", "text, whatever is in it"
    assert settings.explorer.model is None
    assert (settings.log.level, settings.log.format) == ("debug", "console")


def test_a_file_reference_that_cannot_be_followed_is_named_with_its_key(problems, tmp_path):
    (tmp_path / "latin").write_bytes(b"\xff")
    told = problems(
        f"""
        production: {{api_key: "${{file:{tmp_path}/none}}"}}
        explorer: {{model: "${{file:{tmp_path}}}"}}
        capture: {{redact: ["${{file:{tmp_path}/latin}}"]}}
        """
    )
    assert told == (
        f"production.api_key: {tmp_path}/none: no such file (${{file:{tmp_path}/none:-}} would allow that)",
        f"explorer.model: {tmp_path}: cannot be read (Is a directory)",
        f"capture.redact.0: {tmp_path}/latin: expected text in UTF-8",
    )


def test_variables_win_over_the_file(load):
    settings = load(
        """
        production: {base_url: http://one/v1, api_key: ${NOT_SET}}
        selection: {any: [explicit_mark, {sampling: {rate: 0.1}}]}
        commit: {interval: 60s, min_experiences: 5}
        """,
        SLIPSTREAM_LISTEN="127.0.0.2:80",
        SLIPSTREAM_PRODUCTION__API_KEY="sk-from-the-environment",
        SLIPSTREAM_CAPTURE__REDACT="[email, {name: order, pattern: 'ORD-[0-9]+'}]",
        SLIPSTREAM_SELECTION__ANY__1__SAMPLING__RATE="0.7",
        SLIPSTREAM_COMMIT__INTERVAL="10s",
        SLIPSTREAM_COMMIT__ON_SHUTDOWN="false",
    )
    assert (settings.listen.host, settings.listen.port) == ("127.0.0.2", 80)
    assert settings.production.base_url == "http://one/v1"
    assert settings.production.api_key.get_secret_value() == "sk-from-the-environment"
    assert [rule.name for rule in settings.capture.redact] == ["email", "order"]
    assert settings.selection.any[1].sampling.rate == 0.7
    assert (settings.commit.interval, settings.commit.min_experiences) == (10, 5)
    assert settings.commit.on_shutdown is False


def test_a_variable_replaces_a_whole_section_and_a_deeper_one_changes_that(load):
    settings = load(
        "selection: {any: [explicit_mark]}",
        SLIPSTREAM_SELECTION__SAMPLING__SEED="3",
        SLIPSTREAM_SELECTION="{sampling: {rate: 0.5}}",
    )
    assert settings.selection.any is None
    assert (settings.selection.sampling.rate, settings.selection.sampling.seed) == (0.5, 3)


def test_a_variable_that_begins_with_a_star_is_text_and_in_the_file_it_is_to_be_quoted(load):
    assert load("", SLIPSTREAM_COMMIT__SCHEDULE="*/5 * * * *").commit.schedule == "*/5 * * * *"
    with pytest.raises(ConfigError, match=r":1:21: .*; put a text that begins with \* into quotation marks$"):
        load("commit: {schedule: */5 * * * *}")


def test_an_empty_variable_is_null(load):
    settings = load("commit: {max_pending: 5}", SLIPSTREAM_COMMIT__MAX_PENDING="", SLIPSTREAM_EXPLORER__MODEL="")
    assert settings.commit.max_pending is None
    assert settings.explorer.model is None


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("SLIPSTREAM_LISEN", "x", "lisen: unknown key; known here: listen, access,"),
        ("SLIPSTREAM_COMMIT__INTERVALL", "5s", "commit.intervall: unknown key; known here: interval,"),
        ("SLIPSTREAM_COMMIT__INTERVAL", "soon", "commit.interval: expected a duration"),
        ("SLIPSTREAM_CAPTURE__REDACT", "email", "capture.redact: expected a list; found"),
        (
            "SLIPSTREAM_SELECTION__ANY__5__SAMPLING__RATE",
            "1",
            "SLIPSTREAM_SELECTION__ANY__5__SAMPLING__RATE: expected ",
        ),
        ("SLIPSTREAM_LISTEN__PORT", "80", "SLIPSTREAM_LISTEN__PORT: listen has a plain value, with no key port in it"),
        ("SLIPSTREAM_PRODUCTION__API_KEY", "[a", "SLIPSTREAM_PRODUCTION__API_KEY:1:3: while parsing a flow sequence"),
    ],
)
def test_a_bad_variable_is_named(problems, variable, value, told):
    (line,) = problems("{listen: '127.0.0.1:1', selection: {any: [explicit_mark]}}", **{variable: value})
    assert line.startswith(told)
    assert variable in line


def test_other_programs_variables_are_left_alone(load):
    assert load(SLIPSTREAMER="1", slipstream_listen="x", PATH="/bin") == Settings()


def test_variables_of_the_commands_and_of_the_client_are_no_keys(load):
    root = Path(__file__).parents[2]
    sources = [*(root / "service/slipstream").rglob("*.py"), *(root / "client/slipstream_client").rglob("*.py")]
    text = "\n".join(source.read_text(encoding="utf-8") for source in sources)
    found = set(re.findall(r"(?<!\w)SLIPSTREAM_[A-Z]+(?:_[A-Z]+)*(?!\w)", text))
    assert {"SLIPSTREAM_URL", "SLIPSTREAM_VLLM_PYTHON"} <= found
    assert load(**dict.fromkeys(found, "a value")) == Settings()


def test_a_variable_changes_one_use_of_an_alias_alone(load):
    settings = load(
        "selection: {any: [&often {sampling: {rate: 0.1}}, {all: [*often]}]}",
        SLIPSTREAM_SELECTION__ANY__0__SAMPLING__RATE="0.9",
    )
    assert settings.selection.any[0].sampling.rate == 0.9
    assert settings.selection.any[1].all[0].sampling.rate == 0.1


def test_a_merged_mapping_may_itself_have_merged_and_replaced_a_key(load):
    settings = load(
        """
        selection:
          any:
            - sampling: &rare {rate: 0.1}
            - all: [{sampling: &often {<<: *rare, rate: 0.5}}]
            - sampling: {<<: *often, seed: 3}
        """
    )
    assert settings.selection.any[2].sampling.model_dump() == {"rate": 0.5, "seed": 3}
