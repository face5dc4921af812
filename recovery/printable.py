"""Text that is safe to print: names on disk may hold any byte, and a terminal obeys some of them."""


def printable(text: str) -> str:
    r"""Return *text* with control characters and bytes that are not UTF-8 escaped, as "\x1b" or "\udcff"."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
