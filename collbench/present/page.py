"""The common parts of HTML pages that fetch nothing: templates, a policy, compressed scripts, colours.

`assets/` has colours for light and dark (`colours.css`), texts of units (`views.js`), and, as their makers publish
them, plotly.js and fflate, which unpacks it.
"""

import base64
import hashlib
import re
import zlib
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape


def templates(package: str, folder: str) -> Environment:
    """Return a package's templates: texts that they are given are escaped, and a name that they lack is an error.

    Text between back-ticks is shown as code.
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
    """Return a text with its back-ticks as elements, and one without its pair as an apostrophe."""
    if not isinstance(value, str) or isinstance(value, Markup) or "`" not in value:
        return value
    marked = re.sub("`([^`]*)`", r"<code>\1</code>", str(escape(value)))
    return Markup(marked.replace("`", "&#39;"))


def policy(*scripts: str) -> str:
    """Return a Content-Security-Policy: no request to anywhere, and no script but these.

    Plotly sets styles, which a policy has no finer word for.
    """
    hashes = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "connect-src 'none'; base-uri 'none'; form-action 'none'"
    )


def packed(text: str) -> str:
    """Return a text as the page unpacks it: raw DEFLATE, in base 64.

    fflate unpacks it, since the browser's own way is asynchronous, and a page may be printed before that is done.
    """
    deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return base64.b64encode(deflate.compress(text.encode()) + deflate.flush()).decode()


def asset(name: str, package: str = "") -> str:
    """Return the text of a file that pages are made of: of a package's own, or by default of what they share.

    These are `colours.css`, light and dark, `views.js`, texts of units, plotly.js and fflate.
    """
    folder = resources.files(package) if package else resources.files(__package__) / "assets"
    return (folder / name).read_text(encoding="utf-8")
