"""Ways in which logs reach people: by launchers, containers, collectors, terminals, mails and documents."""

import html
from collections.abc import Callable

Wrap = Callable[[str], str]


def _each(before: str, after: str = "") -> Wrap:
    return lambda text: "".join(f"{before}{line}{after}\n" for line in text.splitlines())


def _among_others(text: str) -> str:
    lines = text.splitlines()
    said = (f"{at % 30:2d}: cpu-bind=MASK - nid00{at}, task {at % 30}: mask 0xff set" for at in range(len(lines)))
    return "".join(f" 0: {line}\n{other}\n" for line, other in zip(lines, said, strict=True))


def _stamped(text: str) -> str:
    return "".join(f"2026-03-0{1 + at % 9}T10:11:12.{at:09d}Z {line}\n" for at, line in enumerate(text.splitlines()))


def _fenced(text: str) -> str:
    return f"# Results\n\nThe run of *Tuesday*:\n\n```console\n{text}```\n\n| node | GPUs |\n|---|---|\n| a | 8 |\n"


def _list_of_a_document(text: str) -> str:
    return "1. Run it:\n\n" + "".join(f"    {line}\n" for line in text.splitlines()) + "\n2. Compare.\n"


def _table(text: str) -> str:
    """Rows as a table in Markdown; the tool's other lines stand above it."""
    lines = []
    for line in text.splitlines():
        words = line.lstrip("# ").split()
        row = len(words) > 8 and (words[0].isdigit() or words[0] == "size")
        lines.append("| " + " | ".join(words) + " |" if row else line)
        if row and words[0] == "size":
            lines.append("|" + "---|" * len(words))
    return "\n".join(lines) + "\n"


WRAPPINGS: dict[str, Wrap] = {
    "mpirun --tag-output": _each("[1,0]<stdout>:"),
    "Open MPI 5": _each("[prterun-node-17-4242@1,0]<stdout>: "),
    "mpiexec -prepend-rank": _each("[0] "),
    "srun --label": _each("0: "),
    "srun --label, padded": _each("   0: "),
    "srun --label of many": _among_others,
    "pdsh": _each("node-017: "),
    "ansible": _each("10.0.0.7: "),
    "kubectl logs --prefix": _each("[pod/nccl-test-launcher-x7k2p/mpi] "),
    "kubectl logs --timestamps": _stamped,
    "stern": _each("nccl-test-launcher-x7k2p mpi | "),
    "docker compose": _each("worker-1  | "),
    "journal": _each("Mar 03 10:11:12 node-017 nccl[4242]: "),
    "logger": _each("2026-03-03 10:11:12,123 - INFO - "),
    "bracketed clock": _each("[10:11:12] "),
    "tags in tags": _each("node-017: [1,0]<stdout>: "),
    "mail": _each("> "),
    "tight mail": _each(">"),
    "bullets": _each("- "),
    "numbers": _each("1. "),
    "comment": _each("// "),
    "code fence": _fenced,
    "indented list": _list_of_a_document,
    "backticks": _each("`", "`"),
    "colours": _each("\x1b[32m", "\x1b[0m"),
    "Windows": lambda text: text.replace("\n", "\r\n"),
    "progress": lambda text: "".join(f"waiting...\r{line}\n" for line in text.splitlines()),
    "HTML": lambda text: "".join(f"<p>{html.escape(line)}<br>\n" for line in text.splitlines()),
    "hard blanks": lambda text: text.replace("  ", "\u00a0 "),
    "tabs": lambda text: text.replace("    ", "\t"),
    "one blank": lambda text: "".join(" ".join(line.split()) + "\n" for line in text.splitlines()),
    "blank lines": lambda text: text.replace("\n", "\n\n"),
    "no marks": lambda text: "".join(f"{line.lstrip('#')}\n" for line in text.splitlines()),
    "trailing blanks": _each("", " " * 40),
}
TABLES = WRAPPINGS | {"Markdown table": _table}
