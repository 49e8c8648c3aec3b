"""The documents hang together: every link leads somewhere, the index and the glossary are complete and in order."""

import json
import re
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml

REPOSITORY = Path(__file__).parents[2]
DOCS = REPOSITORY / "docs"
PAGES = sorted([*REPOSITORY.glob("*.md"), *DOCS.rglob("*.md")])
EXPERIMENTS = sorted(page for page in (DOCS / "log").glob("*.md") if page.name != "index.md")

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))


def links_of(page):
    """Targets of the inline links and images of a page."""
    text = re.sub(r"^(```|~~~).*?^\1", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)", text)


def slug(heading):
    """The anchor that GitHub gives a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")


@cache
def anchors_of(page):
    anchors, seen = set(), {}
    text = re.sub(r"^(```|~~~).*?^\1", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", text, flags=re.MULTILINE):
        name = slug(heading)
        seen[name] = seen.get(name, -1) + 1
        anchors.add(f"{name}-{seen[name]}" if seen[name] else name)
    return anchors


def fault_of(page, target):
    """What is wrong with a link of a page; None where it leads somewhere."""
    if re.match(r"[a-z][a-z0-9+.-]*:", target):
        return None
    path, _, anchor = unquote(target).partition("#")
    file = (page.parent / path).resolve() if path else page
    if not file.exists():
        return f"{target}: no such file"
    if not file.is_relative_to(REPOSITORY):
        return f"{target}: outside of the repository"
    if anchor and file.suffix == ".md" and anchor not in anchors_of(file):
        return f"{target}: no such heading; there are {', '.join(sorted(anchors_of(file)))}"
    return None


@every_page
def test_every_body_of_a_request_is_json(page):
    for body in re.findall(r"-d '(\{.*?\})'", page.read_text(encoding="utf-8"), flags=re.DOTALL):
        json.loads(body)


@every_page
def test_every_link_leads_somewhere(page):
    faults = [fault for target in links_of(page) if (fault := fault_of(page, target))]

    assert faults == []


def test_a_link_to_nothing_is_found(tmp_path):
    page = REPOSITORY / "README.md"

    assert fault_of(page, "docs/absent.md") == "docs/absent.md: no such file"
    assert "no such heading" in fault_of(page, "docs/decision.md#absent")
    assert fault_of(page, "../elsewhere") is not None


def test_headings_become_githubs_anchors():
    assert slug("Scoring, reranking, rewards") == "scoring-reranking-rewards"
    assert slug("GSM8K (`gsm8k`)") == "gsm8k-gsm8k"
    assert slug("One value, or [many](x.md)") == "one-value-or-many"


def test_the_readme_links_every_document_that_it_names():
    """A path in back quotes cannot be clicked."""
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    outside_of_code = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)

    assert re.findall(r"`[\w/.-]+\.(?:md|yaml|txt)`", outside_of_code) == []


def test_the_readme_is_short():
    assert len((REPOSITORY / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def test_the_readmes_image_is_small():
    image = DOCS / "images" / "page.png"

    assert image.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert image.stat().st_size <= 200_000


def test_the_index_has_every_document_once():
    targets = [target.partition("#")[0] for target in links_of(DOCS / "index.md")]
    listed = [(DOCS / target).resolve() for target in targets if target.endswith(".md")]
    in_tables = re.findall(r"^\|.*", (DOCS / "index.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    once = re.findall(r"\]\(([^)#]+\.md)", "\n".join(in_tables))
    documents = {page for page in DOCS.rglob("*.md") if page.parent.name != "log"} - {DOCS / "index.md"}

    assert documents | {DOCS / "log" / "index.md"} <= set(listed)
    assert sorted(once) == sorted(set(once))


def test_the_glossary_is_in_alphabetical_order():
    rows = re.findall(r"^\| ([^|]+?) \|", (DOCS / "glossary.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    words = rows[1:]

    assert len(words) > 50
    assert words == sorted(words, key=str.casefold)


@pytest.mark.parametrize("page", EXPERIMENTS, ids=lambda page: page.stem)
def test_an_experiment_has_question_setup_result_and_conclusion(page):
    headings = re.findall(r"^## (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)

    assert headings == ["Question", "Setup", "Result", "Conclusion"]


def test_the_log_lists_every_experiment_by_its_title():
    text = (DOCS / "log" / "index.md").read_text(encoding="utf-8")
    titles = {page: page.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ") for page in EXPERIMENTS}

    assert [page.name for page, title in titles.items() if f"[{title}]({page.name})" not in text] == []


def test_the_site_has_every_page_but_single_experiments_in_its_navigation():
    navigation = yaml.safe_load((REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    listed = re.findall(r"[\w/]+\.md", str(navigation))
    assert sorted(listed) == sorted(
        str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if page not in EXPERIMENTS
    )
