"""The page at `/`: one HTML file that fetches nothing but `/api/v1/status`, and a policy that holds it to that.

The policy names the page's own script and style by their hashes. Whatever else might get into the page, from the name
of a file or in any other way, is not run, and nothing can be fetched from elsewhere. Nor may the script hand the
browser text as markup (Trusted Types).
"""

import re
from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import NamedTuple

_INLINE = re.compile(rb"<(script|style)>(.*?)</\1>", re.DOTALL)


class Page(NamedTuple):
    """The page as it is sent.

    Attributes:
        body: HTML in UTF-8, at most 64 KiB.
        headers: those that this page needs beyond what every answer has.
    """

    body: bytes
    headers: dict[str, str]


@cache
def page() -> Page:
    """Return the page, read once for all."""
    body = files("recovery.watch.http").joinpath("page.html").read_bytes()
    return Page(body, {"Content-Security-Policy": _policy(body), "Referrer-Policy": "no-referrer"})


def _policy(body: bytes) -> str:
    hashes = {
        tag: f"'sha256-{b64encode(sha256(text).digest()).decode()}'" for tag, text in _INLINE.findall(body)
    }
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {hashes[b'script']}",
            f"style-src {hashes[b'style']}",
            "connect-src 'self'",
            "img-src data:",  # the empty icon, so that none is asked for
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )
