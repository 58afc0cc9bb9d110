"""Common parts of self-contained HTML pages: templates, policy, compressed scripts.

`assets/` has light and dark colours (`colours.css`), texts of units (`views.js`), and the published plotly.js and
fflate, which unpacks it.
"""

import base64
import hashlib
import re
import zlib
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape


def templates(package: str, folder: str) -> Environment:
    """Return a package's templates.

    They escape texts, show text between back-ticks as code, and raise an error for an undefined name.
    """
    return Environment(
        loader=PackageLoader(package, folder),
        autoescape=True,
        finalize=_code,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _code(value: object) -> object:
    """Return a text with pairs of back-ticks as code elements, and a single back-tick as an apostrophe."""
    if not isinstance(value, str) or isinstance(value, Markup) or "`" not in value:
        return value
    marked = re.sub("`([^`]*)`", r"<code>\1</code>", str(escape(value)))
    return Markup(marked.replace("`", "&#39;"))


def policy(*scripts: str) -> str:
    """Return a Content-Security-Policy that forbids all requests and allows only these scripts.

    Inline styles are allowed, since Plotly sets them.
    """
    hashes = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "connect-src 'none'; base-uri 'none'; form-action 'none'"
    )


def packed(text: str) -> str:
    """Return a text compressed for the page: raw DEFLATE in base 64.

    fflate unpacks it, since the browser's own function is asynchronous and might end after a page is printed.
    """
    deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return base64.b64encode(deflate.compress(text.encode()) + deflate.flush()).decode()


def asset(name: str, package: str = "") -> str:
    """Return the text of a file for pages, from a package, or by default from `assets/` here."""
    folder = resources.files(package) if package else resources.files(__package__) / "assets"
    return (folder / name).read_text(encoding="utf-8")
