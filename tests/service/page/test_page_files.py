"""The pages as files: what is sent, with which headers, to whom."""

import re
from html.parser import HTMLParser

import pytest

from raydebm.service.access import Keyring
from raydebm.service.page import FOLDER, PAGES, page_paths, page_text

NAMES = {file.name for file in FOLDER.iterdir()}


class Elements(HTMLParser):
    """(tag, attributes) of every start tag."""

    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))


@pytest.fixture(params=sorted(PAGES))
def page(request):
    return page_text(request.param)


def test_every_page_and_file_is_there_without_a_key_and_no_data_is(bundle, client_of):
    stranger = client_of(bundle, keyring=Keyring([]))
    assert {path: stranger.get(path).status_code for path in page_paths()} == dict.fromkeys(page_paths(), 200)
    assert stranger.get("/v1/options").status_code == 401
    assert stranger.get("/v1/problems").status_code == 401


def test_an_unknown_file_is_a_404_in_openais_form(client):
    reply = client.get("/static/../files.py")
    assert (reply.status_code, set(reply.json()["error"])) == (404, {"message", "type", "code", "param"})
    assert client.get("/static/nothing.css").status_code == 404


def test_a_page_allows_nothing_from_elsewhere_and_nothing_inline(client):
    policy = client.get("/").headers["content-security-policy"]
    assert policy.startswith("default-src 'self';")
    assert "unsafe" not in policy


def test_what_the_browser_has_already_is_not_sent_again(client):
    first = client.get("/static/base.js")
    again = client.get("/static/base.js", headers={"If-None-Match": f'"x", W/{first.headers["etag"]}'})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get("/static/base.js", headers={"If-None-Match": '"x"'}).content == first.content
    assert first.headers["cache-control"] == "no-cache"


def test_every_address_of_a_page_is_relative_so_that_it_works_below_a_prefix(page):
    addresses = [
        value for _, attrs in Elements(page).tags for name in ("href", "src", "action") if (value := attrs.get(name))
    ]
    assert addresses
    assert [value for value in addresses if value.startswith("/") or "//" in value] == []


def test_a_page_has_no_inline_script_and_no_inline_style(page):
    for tag, attrs in Elements(page).tags:
        assert tag != "style"
        assert tag != "script" or attrs.get("src")
        assert not [name for name in attrs if name == "style" or name.startswith("on")], (tag, attrs)


def test_every_file_that_a_page_names_is_there(page):
    named = {value.removeprefix("static/") for _, attrs in Elements(page).tags for name in ("href", "src")
             if (value := attrs.get(name, "")).startswith("static/")}  # fmt: skip
    assert named <= NAMES


@pytest.mark.parametrize("name", sorted(name for name in NAMES if name.endswith(".js")))
def test_scripts_import_each_other_only_and_never_set_markup(name):
    text = (FOLDER / name).read_text()
    imported = re.findall(r'from "([^"]+)"', text)
    assert {module.removeprefix("./") for module in imported} <= NAMES
    for banned in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
        assert banned not in text
