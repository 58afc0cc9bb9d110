"""Text that comes from elsewhere, as it may be shown: a file's words must not act on a terminal, nor break a line."""


def printable(text: str) -> str:
    """With an escape for each character that no line of text should hold; what it was can be told."""
    return text if text.isprintable() else "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def visible(text: str) -> str:
    """With a sign for each of them: controls, halves of a pair, changes of direction."""
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)
