"""Formats of other tools: `import`, `export`, and the programs of nccl-tests."""

from collbench.presence import Command

COMMANDS = (
    Command(
        __name__,
        "import",
        "Files",
        1,
        summary="Read results of other tools into run files; `collbench list formats` names the tools.",
        code="import:command",
        functions={"import_": "importing"},
        lists={"formats": "importing:listed"},
    ),
    Command(
        __name__,
        "export",
        "Files",
        2,
        summary="Write a run file as another tool's output: nccl-tests or tidy CSV.",
        code="export:command",
    ),
    Command(__name__, "_perf", code="_perf:command_named", family=True, together=True),
)
