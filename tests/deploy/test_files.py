"""Files in deploy/: each is well-formed, and calls collbench as collbench can be called."""

import json
import os
import pwd
import re
import shutil
from pathlib import Path

import click
import pytest

from collbench.cli.group import group
from tests.conftest import ROOT
from tests.deploy.programs import DEPLOY, passes, program, run, written

pytestmark = pytest.mark.deploy

FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
SCRIPTS = [path for path in FILES if path.suffix in (".sh", ".sbatch")]
RULES = "{extends: default, rules: {line-length: {max: 130}, document-start: disable}}"


def test_every_call_of_collbench_has_options_that_exist() -> None:
    found = 0
    for path in FILES:
        text = re.sub(r"\\\n\s*", "", path.read_text(encoding="utf-8"))
        text = re.sub(r"collbench\s*(?:,|\n *-)\s*(check|sweep)", r"collbench \1", text)
        for name, words in re.findall(r"collbench (check|sweep)\b([^\n;|`)\]]*)", text):
            command = group.get_command(None, name)  # type: ignore[arg-type]
            assert isinstance(command, click.Command)
            known = {option for parameter in command.params for option in parameter.opts}
            asked = set(re.findall(r"(?<=\s)--?[a-z][\w-]*", words))
            assert asked <= known, (path, asked - known)
            found += 1
    assert found > 20


def test_scripts_yaml_and_dockerfiles_are_clean_by_their_linters() -> None:
    for path in SCRIPTS:
        passes("shellcheck", path)
        assert bool(path.stat().st_mode & 0o100) is (path.suffix == ".sh" and path.parent.name == "slurm"), path
    passes("yamllint", "--strict", "-d", RULES, DEPLOY)
    passes("hadolint", DEPLOY / "Dockerfile", DEPLOY / "Dockerfile.ngc")
    passes("check-jsonschema", "--builtin-schema", "vendor.compose-spec", DEPLOY / "compose.yaml")
    (extra,) = re.findall(r"\{EXTRA:-(\w+)\}", (DEPLOY / "compose.yaml").read_text())
    assert f"\n{extra} = [" in (ROOT / "pyproject.toml").read_text()


def test_the_wheel_builds_from_what_an_image_gets_of_the_checkout(tmp_path: Path) -> None:
    rules = (DEPLOY / "Dockerfile.dockerignore").read_text()
    assert rules == (DEPLOY / "Dockerfile.ngc.dockerignore").read_text()
    for name in re.findall(r"^!(\S+)$", rules, re.MULTILINE):
        (tmp_path / name).symlink_to(ROOT / name)
    passes("python", "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "dist", cwd=tmp_path)
    assert len(list((tmp_path / "dist").glob("collbench-*.whl"))) == 1


def test_whoever_has_no_home_in_a_container_gets_one_of_their_own(tmp_path: Path) -> None:
    found = re.search(r"^ENTRYPOINT (.*)", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert found
    for given in (str(tmp_path), "/nowhere"):
        home = {"HOME": given, "TMPDIR": str(tmp_path)}
        own = passes(*json.loads(found[1]), "printenv", "HOME", env=home).strip()
        assert (own == given) is (given == str(tmp_path))
        assert Path(own).stat().st_mode & 0o777 == 0o700


def test_only_who_has_the_key_of_the_job_gets_into_a_worker_or_is_taken_for_one(tmp_path: Path) -> None:
    sshd, mine = program("sshd"), pwd.getpwuid(os.geteuid()).pw_name
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    text = re.sub(r"\\\n", "", (DEPLOY / "Dockerfile").read_text()).replace("$(id -nu 1000)", mine)
    for job in (tmp_path / "ours", tmp_path / "theirs"):
        job.mkdir()
        job.chmod(0o1777)
        passes("ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", job / "id_rsa")
        shutil.copy(job / "id_rsa.pub", job / "authorized_keys")
        for command in re.findall(r"printf [^>]*> /etc/ssh/sshd?_config\.d/workers\.conf", text):
            command = command.replace("/etc/ssh/job", str(job)).replace("/etc/ssh/", f"{job}.")
            passes("sh", "-c", command.replace(".d/workers.conf", ""))
    host = (tmp_path / "ours.sshd_config").read_text().replace("HostKey", f"HostKey {tmp_path}/theirs/id_rsa #")
    (tmp_path / "false.sshd_config").write_text(host)
    for case in ("ours ours yes in", "theirs ours no", "ours false no in", "ours false yes"):
        user, server, checks, *said = case.split()
        reach = f"ProxyCommand={sshd} -i -f {tmp_path}/{server}.sshd_config"
        options = ("-F", tmp_path / f"{user}.ssh_config", "-o", "BatchMode=yes", "-o", reach)
        options += ("-o", "StrictHostKeyChecking=no") if checks == "no" else ()
        done = run(program("ssh"), *options, "worker", "echo in")
        assert done.stdout.split() == said, (case, done.stderr)


def test_tasks_for_clouds_start_a_process_for_each_gpu_of_each_node() -> None:
    sky, dstack = written(DEPLOY / "skypilot.yaml"), written(DEPLOY / "dstack.yaml")
    assert set(sky) <= {"name", "num_nodes", "resources", "config", "run"}
    assert dstack["type"] == "task"
    of_sky = {"NUM_NODES": "2", "NUM_GPUS_PER_NODE": "8", "NODE_RANK": "1", "NODE_IPS": "10.0.0.1\n10.0.0.2"}
    of_dstack = {"NODES_NUM": "2", "GPUS_PER_NODE": "8", "NODE_RANK": "1", "MASTER_NODE_IP": "10.0.0.1"}
    expected = "torchrun --no-python --nnodes 2 --nproc-per-node 8 --node-rank 1"
    expected += " --master-addr 10.0.0.1 --master-port 29500 collbench check"
    for prefix, values, command in (("SKYPILOT", of_sky, sky["run"]), ("DSTACK", of_dstack, dstack["commands"][0])):
        variables = {f"{prefix}_{name}": value for name, value in values.items()}
        shown = passes("bash", "-c", f'torchrun() {{ echo torchrun "$@"; }}\n{command}', env=variables)
        assert shown.split() == expected.split()
