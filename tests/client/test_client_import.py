"""What the package shows to its users: names, types, documentation; and what its import leaves alone."""

from __future__ import annotations

import ast
import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import slipstream_client as slipstream

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "client" / "slipstream_client"

HEAVY = {"openai", "anthropic", "pydantic", "fastapi", "sqlalchemy", "torch", "datasets", "numpy", "slipstream"}


def modules_after(code: str) -> set[str]:
    script = f"{code}\nimport sys, json; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60)
    return set(json.loads(done.stdout))


def test_the_import_brings_one_module_and_marks_bring_httpx_alone() -> None:
    bare = modules_after("")
    imported = modules_after("import slipstream_client")
    assert {name for name in imported - bare if name.startswith("slipstream")} == {"slipstream_client"}

    used = modules_after(
        "import slipstream_client as s\nwith s.mark('a'): pass\ns.feedback, s.http_client(), s.flush(0), s.commit"
    )
    assert not HEAVY & used
    assert "httpx" in used


@pytest.mark.parametrize("name", [*slipstream._WHERE, "__version__"])
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(slipstream, name) is not None
    assert name in dir(slipstream)


def test_no_module_takes_the_place_of_a_public_name() -> None:
    """`import slipstream_client.x` sets the package's `x` to the module, whatever was there."""
    modules = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert not modules & set(slipstream._WHERE)


def test_type_checkers_see_the_same_names_at_the_same_places() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    [block] = [node for node in tree.body if isinstance(node, ast.If)]
    shown = {
        alias.name: str(node.module).removeprefix("slipstream_client.")
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert shown == slipstream._WHERE


def test_a_name_that_is_none_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'slipstream_client' has no attribute 'marks_all'"):
        _ = slipstream.marks_all


def test_the_tuners_names_say_what_to_install() -> None:
    script = "import sys; sys.modules['tqdm'] = None; import slipstream_client; slipstream_client.tune"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    told = "ImportError: tune needs tqdm: pip install 'slipstream-sidecar-client[tuner]'"
    assert done.stderr.splitlines()[-1] == told


def test_what_windows_has_no_means_for_says_so() -> None:
    script = "import asyncio, anyio, sys; sys.modules['fcntl'] = None; import slipstream_client as client\n"
    script += "assert 'tune' not in dir(client) and 'select_model' in dir(client); client.tune"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    told = "ImportError: tune needs file locks of Linux or macOS (fcntl), which Windows does not have: run it in WSL"
    assert done.stderr.splitlines()[-1] == told


TUNER = {"datasets", "gepa", "huggingface_hub", "tensorboard", "yaml"}
SDKS = {"anthropic", "openai", "pydantic", "tqdm", "jiter", "distro"}


@pytest.mark.parametrize(
    ("absent", "hidden"),
    [
        (set(), set()),
        (TUNER, {"PromptTuneConfig", "tune_prompt"}),
        ({"tqdm"}, {"PromptTuneConfig", "TuneResult", "tune", "tune_prompt"}),
        (TUNER | SDKS, {name for name, module in slipstream._WHERE.items() if module.startswith("tuner.")}),
    ],
    ids=["everything", "[openai]", "without tqdm", "httpx alone"],
)
def test_help_shows_what_can_be_used_and_the_rest_says_what_to_install(absent: set[str], hidden: set[str]) -> None:
    script = f"""
import inspect, json, pydoc, sys
sys.modules.update(dict.fromkeys({sorted(absent)!r}))
import slipstream_client
text = pydoc.plain(pydoc.render_doc(slipstream_client))
members = dict(inspect.getmembers(slipstream_client))
if {"pydantic" not in absent!r}:
    import slipstream_client.tuner
    pydoc.render_doc(slipstream_client.tuner)
    inspect.getmembers(slipstream_client.tuner)
errors = dict()
for name in {sorted(hidden)!r}:
    try:
        getattr(slipstream_client, name)
    except ImportError as error:
        errors[name] = str(error)
for sdk in {sorted(absent & {"anthropic", "openai"})!r}:
    for name in (sdk, "async_" + sdk):
        try:
            getattr(slipstream_client, name)()
        except ImportError as error:
            errors[name] = str(error)
print(json.dumps([sorted(members), "TrainingRunner" in text, errors]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    members, shown, errors = json.loads(done.stdout)
    assert set(slipstream._WHERE) - set(members) == hidden
    assert shown
    for name in hidden:
        assert re.fullmatch(r".+ needs \w+: pip install 'slipstream-sidecar-client\[tuner\]'", errors.pop(name))
    for sdk in absent & {"anthropic", "openai"}:
        for name in (sdk, f"async_{sdk}"):
            told = f"{name}() needs {sdk}: pip install 'slipstream-sidecar-client[{sdk}]'"
            assert errors.pop(name) == told
    assert errors == {}


def test_all_that_needs_no_extra_is_there_without_one() -> None:
    script = "import sys; sys.modules['tqdm'] = None; from slipstream_client import *; print(mark)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "mark" in done.stdout


def test_the_documentation_has_every_public_name() -> None:
    pages = "".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))
    words = set(re.findall(r"\w+", pages))
    assert [name for name in slipstream._WHERE if name not in words] == []


def test_the_documentations_python_can_be_compiled() -> None:
    page = (ROOT / "docs" / "client.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        compile(block, "docs/client.md", "exec")


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_python_3_10_can_read_it(path: Path) -> None:
    ast.parse(path.read_text(), feature_version=(3, 10))


def test_the_versions_agree() -> None:
    assert importlib.metadata.version("slipstream-sidecar-client") == slipstream.__version__
