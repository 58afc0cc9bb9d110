"""What a stranger looks for in a repository is there, and says the same everywhere: licence, citation, version, CI."""

import hashlib
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.version import Version

import collbench
from tests.conftest import ROOT
from tests.test_wheel import PROJECT, PROMISED

APACHE_2 = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"  # of the text as apache.org has it
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@cache
def written(path: Path) -> dict[Any, Any]:
    """A file of YAML."""
    fields = yaml.safe_load(path.read_text())
    assert isinstance(fields, dict)
    return fields


def targets(words: str) -> list[str]:
    """The targets of make that a command, or several, ask for."""
    calls = re.findall(r"(?:^|[;&|] *)make((?: +[^\s;&|#]+)+)", words, re.MULTILINE)
    return [word for call in calls for word in call.split() if not word.startswith("-") and "=" not in word]


def prerequisites(target: str) -> list[str]:
    """Of a target of the Makefile; an error where there is none of that name."""
    found = re.search(rf"^{re.escape(target)}:(?!=)(.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert found, f"the Makefile has no {target}"
    return found[1].split()


def test_the_licence_is_the_one_that_is_promised() -> None:
    """Its whole text, unchanged."""
    assert hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest() == APACHE_2
    assert written(ROOT / "CITATION.cff")["license"] == "Apache-2.0"


def test_what_others_wrote_has_its_licence_beside_it() -> None:
    """plotly.js and fflate are MIT, as their texts say, and the wheel says all."""
    assert PROJECT["license"] == "Apache-2.0 AND MIT"
    foreign = ROOT / "collbench" / "report"
    assert "Licensed under the MIT license" in (foreign / "plotly" / "plotly-basic.min.js").read_text()[:300]
    for licence in foreign.glob("*/LICENSE"):
        assert "MIT License" in licence.read_text()[:20]
    assert {str(path.relative_to(ROOT)) for path in (ROOT / "collbench").rglob("LICENSE*")} | {"LICENSE"} == {
        *PROJECT["license-files"]
    }


def test_the_citation_names_the_developers_and_nobody_else() -> None:
    """As the Citation File Format 1.2.0 wants an entity: by its name alone."""
    citation = written(ROOT / "CITATION.cff")
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title"} <= citation.keys()
    assert citation["authors"] == PROJECT["authors"]


def test_version_changelog_and_citation_agree() -> None:
    """The newest release is cited, with its day; what is not released yet says so."""
    changelog = (ROOT / "CHANGELOG.md").read_text()
    released = re.search(r"^## (\d+\.\d+\.\d+) - (\d{4}-\d\d-\d\d)$", changelog, re.MULTILINE)
    citation = written(ROOT / "CITATION.cff")
    version = Version(collbench.__version__)
    if released is None:
        assert (citation["version"], citation.get("date-released")) == (str(version), None)
    else:
        assert (citation["version"], str(citation.get("date-released"))) == released.groups()
        assert version == Version(released[1]) or (version > Version(released[1]) and version.is_devrelease)


def test_addresses_agree() -> None:
    """There are none before the repository is public; then it is the same in both."""
    cited = written(ROOT / "CITATION.cff").get("repository-code")
    assert cited in {None, *PROJECT.get("urls", {}).values()}
    assert (cited is None) == ("urls" not in PROJECT)


def test_hooks_are_the_makefiles_own() -> None:
    """So there is one place for rules and versions, and a commit is held to nothing that `make test` is not."""
    (repository,) = written(ROOT / ".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    for hook in repository["hooks"]:
        assert targets(hook["entry"]) == [hook["id"]]
        assert hook["id"] in prerequisites("test")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_little_and_ends(path: Path) -> None:
    """It reads, knows no secrets, keeps no password, uses only the host's own actions, and has an end."""
    flow = written(path)
    assert flow["permissions"] == {"contents": "read"}
    assert flow["concurrency"]["group"]
    assert "secrets." not in path.read_text()
    assert "pull_request_target" not in flow[True]  # YAML 1.1 reads `on` as a truth
    for name, job in flow["jobs"].items():
        assert 0 < job["timeout-minutes"] <= 90, name
        assert "permissions" not in job
        for step in (step for step in job["steps"] if "uses" in step):
            assert re.fullmatch(r"actions/[a-z-]+@v\d+", step["uses"])
            assert "checkout" not in step["uses"] or step["with"]["persist-credentials"] is False


def test_ci_runs_what_the_readme_tells_a_user() -> None:
    """Both commands; and every target that it, its script or the hooks name is one of the Makefile."""
    jobs = written(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]
    said = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    script = (ROOT / ".ci" / "run").read_text()
    assert "bash .ci/run" in said
    asked = targets("\n".join([*said, script]))
    assert {"sweep", "test"} <= set(asked)
    for target in asked:
        prerequisites(target)


def test_every_python_that_is_promised_is_tried() -> None:
    """The oldest is the least that pip accepts, and the workflow installs on each."""
    outside = written(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]["outside"]
    assert outside["strategy"]["matrix"]["python"] == PROMISED
    assert PROJECT["requires-python"] == f">={PROMISED[0]}"
