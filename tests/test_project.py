"""What a stranger looks for in a repository is there, and says the same everywhere: licence, version, CI."""

import hashlib
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import yaml
from packaging.version import Version

import collbench
from tests.conftest import ROOT

APACHE_2 = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"  # of the text as apache.org has it
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PROMISED = re.findall(r":: (3\.\d+)$", "\n".join(PROJECT["classifiers"]), re.MULTILINE)
WORKFLOWS = ROOT / ".github" / "workflows"


def written(path: Path) -> dict[Any, Any]:
    fields = yaml.safe_load(path.read_text())
    assert isinstance(fields, dict)
    return fields


def test_the_licence_is_apache_2_and_what_others_wrote_has_theirs_beside_it() -> None:
    assert hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest() == APACHE_2
    assert written(ROOT / "CITATION.cff")["license"] == "Apache-2.0"
    assert PROJECT["license"] == "Apache-2.0 AND MIT"
    foreign = set((ROOT / "collbench").rglob("LICENSE*"))
    assert all("MIT License" in licence.read_text()[:20] for licence in foreign)
    assert {str(path.relative_to(ROOT)) for path in foreign} | {"LICENSE"} == {*PROJECT["license-files"]}


def test_version_changelog_and_citation_agree() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    released = re.search(r"^## (\d+\.\d+\.\d+) - (\d{4}-\d\d-\d\d)$", changelog, re.MULTILINE)
    citation, version = written(ROOT / "CITATION.cff"), Version(collbench.__version__)
    assert citation["authors"] == PROJECT["authors"]
    assert citation.get("repository-code") in {None, *PROJECT.get("urls", {}).values()}
    if released is None:
        assert (citation["version"], citation.get("date-released")) == (str(version), None)
    else:
        assert (citation["version"], str(citation.get("date-released"))) == released.groups()
        assert version == Version(released[1]) or (version > Version(released[1]) and version.is_devrelease)


def test_make_sweep_ends_with_how_to_call_collbench() -> None:
    make = ["make", "-n", "--no-print-directory", "sweep"]
    steps = subprocess.run(make, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    *_, sweep, words = steps.strip().splitlines()
    assert sweep.split()[0] in words
    assert ".venv/bin/activate" in words


def test_ci_runs_what_the_readme_tells_a_user_on_every_promised_python() -> None:
    jobs = written(WORKFLOWS / "ci.yml")["jobs"]
    said = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert "bash .ci/run" in said
    calls = re.findall(
        r"(?:^|[;&|] *)make((?: +[^\s;&|#]+)+)", "\n".join([*said, (ROOT / ".ci" / "run").read_text()]), re.M
    )
    asked = {word for call in calls for word in call.split() if not word.startswith("-") and "=" not in word}
    assert asked >= {"sweep", "test"}
    makefile = (ROOT / "Makefile").read_text()
    for target in asked | {hook["id"] for hook in written(ROOT / ".pre-commit-config.yaml")["repos"][0]["hooks"]}:
        assert re.search(rf"^{re.escape(target)}:(?!=)", makefile, re.MULTILINE), f"the Makefile has no {target}"
    assert jobs["outside"]["strategy"]["matrix"]["python"] == PROMISED
    assert PROJECT["requires-python"] == f">={PROMISED[0]}"
