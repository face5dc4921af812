"""Text that is safe to print: names on disk may hold any byte, and a terminal obeys some of them."""


def is_utf8(name: str) -> bool:
    """Return whether *name*, as Python has it, has only bytes that are UTF-8: a store lists no others."""
    return name.isascii() or not any("\ud800" <= character <= "\udfff" for character in name)


def printable(text: str) -> str:
    r"""Return *text* with control characters and bytes that are not UTF-8 escaped, as "\x1b" or "\udcff"."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
