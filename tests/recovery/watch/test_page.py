"""The page as it is sent: small, whole, and held to itself by its policy.

tests/recovery/cli/test_page.py looks at it in a browser.
"""

import hashlib
import re
from base64 import b64encode
from html.parser import HTMLParser

import pytest

from recovery.watch.http.page import page

MOST_BYTES = 64 << 10
FETCHING = ("src", "href", "srcset", "action", "data", "poster", "background", "style")


class Elements(HTMLParser):
    """All elements, each with its attributes and the text up to the next tag."""

    def __init__(self):
        super().__init__()
        self.found = []
        self.is_inside = False
        self.feed(page().body.decode())

    def handle_starttag(self, tag, attributes):
        self.found.append([tag, dict(attributes), ""])
        self.is_inside = True

    def handle_endtag(self, tag):
        self.is_inside = False

    def handle_data(self, data):
        if self.is_inside:
            self.found[-1][2] += data


def directives():
    policy = page().headers["Content-Security-Policy"]
    return {name: values for name, *values in (part.split() for part in policy.split(";"))}


@pytest.mark.parametrize("tag", ["script", "style"])
def test_the_policy_lets_the_only_script_and_style_of_the_page_and_no_other(tag):
    ((_, attributes, text),) = [one for one in Elements().found if one[0] == tag]
    assert attributes == {}
    assert directives()[f"{tag}-src"] == [
        f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
    ]


def test_the_policy_lets_nothing_else():
    assert directives() | {"script-src": [], "style-src": []} == {
        "default-src": ["'none'"],
        "script-src": [],
        "style-src": [],
        "connect-src": ["'self'"],
        "img-src": ["data:"],
        "base-uri": ["'none'"],
        "form-action": ["'none'"],
        "frame-ancestors": ["'none'"],
        "require-trusted-types-for": ["'script'"],
        "trusted-types": ["'none'"],
    }


def test_the_page_is_small():
    assert len(page().body) <= MOST_BYTES


def test_nothing_comes_from_elsewhere():
    """Links of its own server are relative, so that a proxy may serve it below a path."""
    named = {
        value
        for _, attributes, _ in Elements().found
        for name, value in attributes.items()
        if name in FETCHING
    }
    assert named == {"data:,", "metrics", "api/v1/status"}
    addresses = set(re.findall(rb"[a-z]+://[^\s\"'`]+", page().body))
    assert addresses == {b"http://www.w3.org/2000/svg"}  # a name, which nobody asks for
    assert b"@import" not in page().body
    assert b"url(" not in page().body


def test_no_attribute_is_a_script():
    assert not [name for _, attributes, _ in Elements().found for name in attributes if name.startswith("on")]


def test_identifiers_are_unique_and_labels_lead_somewhere():
    attributes = [one[1] for one in Elements().found]
    identifiers = [one["id"] for one in attributes if "id" in one]
    assert len(identifiers) == len(set(identifiers))
    referred = [
        one[name] for one in attributes for name in ("aria-labelledby", "aria-describedby") if name in one
    ]
    assert referred
    assert set(referred) <= set(identifiers)
    asked = set(re.findall(r'\bat\("([\w-]+)"\)', page().body.decode()))
    assert asked <= set(identifiers)


def test_without_javascript_the_page_says_where_the_figures_are():
    text = page().body.decode()
    (inside,) = re.findall("<noscript>(.*?)</noscript>", text, re.DOTALL)
    assert "needs JavaScript" in inside
    assert re.findall('href="([^"]+)"', inside) == ["metrics", "api/v1/status"]
