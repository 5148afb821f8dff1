"""The site of docs/: every page has a place in it, and what `make docs` builds works without a network."""

from __future__ import annotations

import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
from browser_tab import browser_path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
INDEXES = ("index", "how-to", "reference", "explanation", "adr/README")

# What a browser loads by itself, as opposed to where a reader may go.
ASSETS = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "link": "href",
    "object": "data",
    "embed": "src",
}
NOT_LOADED = {"canonical", "next", "prev", "index", "search", "author", "copyright"}


def listed(name: str) -> list[str]:
    """The pages that a section's index lists, as paths below docs/."""
    text = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    folder = Path(name).parent
    return [str(folder / page) for page in re.findall(r"^(?:- |\| )\[[^\]]+\]\(([\w./-]+)\.md\)", text, re.MULTILINE)]


def test_every_page_is_in_one_section_of_the_site() -> None:
    pages = {str(page.relative_to(DOCS).with_suffix("")) for page in DOCS.rglob("*.md")}
    found = [page for name in INDEXES for page in listed(name)]
    assert sorted(found) == sorted(pages - {"index"})


def test_each_section_says_first_what_it_is_for() -> None:
    for name in INDEXES:
        paragraphs = (DOCS / f"{name}.md").read_text(encoding="utf-8").split("\n\n")
        assert paragraphs[0].startswith("# "), name
        assert re.match(r"[A-Z].+\.", paragraphs[1], re.DOTALL), name


class Assets(HTMLParser):
    """The addresses that a page has a browser load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        address = values.get(ASSETS.get(tag, ""))
        if address and values.get("rel") not in NOT_LOADED:
            self.found.append(address)
        self.found += re.findall(r"url\(([^)]+)\)", values.get("style") or "")


def loaded(file: Path) -> list[str]:
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".html":
        return Assets(text).found
    if file.suffix == ".css":
        return re.findall(r"url\(\s*['\"]?([^'\")]+)", text) + re.findall(r"@import\s+['\"]([^'\"]+)", text)
    return re.findall(r"(?:import|fetch|importScripts)\s*\(\s*['\"`]([^'\"`]+)", text)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it; a warning of Sphinx is an error there."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        ["make", "docs", f"SITE={folder}"], cwd=ROOT, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow
def test_the_site_has_every_page_and_loads_nothing_of_another_host(site: Path) -> None:
    files = [file for file in site.rglob("*") if file.suffix in (".html", ".css", ".js")]
    assert len(files) > 60
    addresses = [(file, address.strip()) for file in files for address in loaded(file)]
    assert len(addresses) > 500
    assert [each for each in addresses if re.match(r"(?:\w+:)?//", each[1])] == []
    dead = [
        (file, address)
        for file, address in addresses
        if file.suffix == ".html"
        and not address.startswith("data:")
        and not (file.parent / re.split(r"[?#]", address)[0]).is_file()
    ]
    assert dead == []
    for page in DOCS.rglob("*.md"):
        assert (site / page.relative_to(DOCS)).with_suffix(".html").is_file(), page


@pytest.mark.slow
def test_reference_is_made_from_the_code(site: Path) -> None:
    made = {
        "routes.html": ["/rollouts/{rollout_id}/approve", "x-slipstream-tenant", "side_effects"],
        "commands.html": ["slipstream quarantine retry", "--no-wait"],
        "python-api.html": ["TrainingRunner", "blocked_tools", "HumanPreferenceCollector.judge"],
    }
    for name, words in made.items():
        text = re.sub(r"<[^>]+>", "", (site / name).read_text(encoding="utf-8"))
        assert [word for word in words if word not in text] == [], name


@pytest.mark.slow
def test_a_search_needs_no_server_and_no_network(site: Path) -> None:
    options = ["--no-sandbox", "--disable-gpu", "--virtual-time-budget=10000", "--host-resolver-rules=MAP * ~NOTFOUND"]
    done = subprocess.run(
        [browser_path(), *options, "--dump-dom", f"{(site / 'search.html').as_uri()}?q=quarantine"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found = re.findall(r'<li class="kind-\w+"><a href="([\w./-]+)\.html', done.stdout)
    assert {"reliability", "operations", "api"} <= set(found)
