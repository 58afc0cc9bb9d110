"""What kustomize makes of base and overlays is valid by Kubernetes' schemas, and its commands do what they say."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import of_a_user
from tests.deploy.programs import DEPLOY, GOOD, SLOW, collbench_with, passes, run

pytestmark = pytest.mark.deploy

K8S = DEPLOY / "k8s"
KINDS = {  # of the resources that `kubectl apply -k` would send
    "base": ["CronJob", "Job"],
    "fleet": ["Job"],
    "indexed-job": ["Job", "Service"],
    "jobset-kueue": ["JobSet"],
    "mpijob": ["MPIJob"],
    "node-problem-detector": ["ConfigMap", "CronJob"],
    "soperator": ["ActiveCheck"],
    "trainjob": ["TrainJob"],
}
Resource = dict[str, Any]
Resources = dict[str, dict[str, Resource]]


@pytest.fixture(scope="module")
def resources() -> Resources:
    found: Resources = {}
    for folder in (K8S / "base", *(K8S / "overlays").iterdir()):
        sent = yaml.safe_load_all(passes("kubectl", "kustomize", folder))
        found[folder.name] = {resource["kind"]: resource for resource in sent}
    return found


def pods(value: Any) -> Iterator[Resource]:
    if isinstance(value, dict):
        if "containers" in value.get("spec", {}):
            yield value
        for inner in value.values():
            yield from pods(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from pods(inner)


def the_container(resource: Resource) -> Resource:
    [pod] = pods(resource)
    [container] = pod["spec"]["containers"]
    return dict(container)


def test_every_overlay_is_built_and_its_pods_and_jobs_are_valid(resources: Resources, tmp_path: Path) -> None:
    assert {name: sorted(found) for name, found in resources.items()} == KINDS
    json.loads(resources["node-problem-detector"]["ConfigMap"]["data"]["collbench.json"])
    path = tmp_path / "resource.yaml"
    for resource in (resource for found in resources.values() for resource in found.values()):
        whole = resource["apiVersion"] in ("v1", "batch/v1")
        held = [
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": pod["spec"]}
            for pod in pods(resource)
        ]
        for one in [resource] if whole else held:
            path.write_text(yaml.safe_dump(one), encoding="utf-8")
            passes("kubernetes-validate", "--strict", "--quiet", path)


def test_processes_are_as_many_as_gpus_and_find_the_first_by_a_name_that_there_is(resources: Resources) -> None:
    job, service = resources["indexed-job"]["Job"], resources["indexed-job"]["Service"]
    jobset = resources["jobset-kueue"]["JobSet"]
    [replicated] = jobset["spec"]["replicatedJobs"]
    names = [found["metadata"]["name"] for found in (job, service, jobset)]
    domain = jobset["spec"]["network"]["subdomain"]
    firsts = (f"{names[0]}-0.{names[1]}", f"{names[2]}-{replicated['name']}-0-0.{domain}")
    for spec, first in zip((job["spec"], replicated["template"]["spec"]), firsts, strict=True):
        container = the_container(spec)
        gpus = container["resources"]["limits"]["nvidia.com/gpu"]
        words = {f"--nnodes={spec['completions']}", f"--nproc-per-node={gpus}", f"--master-addr={first}"}
        assert words <= set(container["command"]), first
        assert spec["completions"] == spec["parallelism"], first
    assert job["spec"]["template"]["spec"]["subdomain"] == names[1]
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": names[0]}
    spec = resources["mpijob"]["MPIJob"]["spec"]
    roles = spec["mpiReplicaSpecs"]
    assert spec["slotsPerWorker"] == the_container(roles["Worker"])["resources"]["limits"]["nvidia.com/gpu"]
    assert f"HostKey {spec['sshAuthMountPath']}/id_rsa'" in (DEPLOY / "Dockerfile").read_text()
    ranks = roles["Worker"]["replicas"] * spec["slotsPerWorker"]
    assert the_container(roles["Launcher"])["command"][:3] == ["mpiexec", "-n", str(ranks)]


def test_scripts_in_pods_report_what_the_check_of_a_node_found(resources: Resources, tmp_path: Path) -> None:
    """The status of node-problem-detector's plugin is 0 for healthy, 1 for a problem, 2 for unknown.

    Soperator drains a node whose job fails; a pod of a fleet fails only without a verdict.
    """
    _, _, detect = the_container(resources["node-problem-detector"]["CronJob"])["command"]
    _, _, fleet = the_container(resources["fleet"]["Job"])["command"]
    batch = resources["soperator"]["ActiveCheck"]["spec"]["slurmJobSpec"]["sbatchScript"]
    place = tmp_path / "bin"
    given = of_a_user() | {
        "PATH": f"{place}:/usr/bin:/bin",
        "NODE": "n7",
        "COLLBENCH_VERDICT": str(tmp_path / "verdict"),
    }
    folders = {"/node/": f"{tmp_path}/", "/fleet/": f"{tmp_path}/fleet/", "/opt/collbench/bin": str(place)}

    def status(script: str) -> int:
        for folder, here in folders.items():
            script = script.replace(folder, here)
        return run("/bin/bash", "-c", script, env=given).returncode

    for options, word, expected in (
        (GOOD, "OK", (0, 0, 0)),
        (SLOW, "SLOW", (1, 1, 0)),
        ("--run missing", "", (2, 0, 1)),
    ):
        collbench_with(place, options)
        status(detect)
        plugin = run("/bin/sh", K8S / "overlays" / "node-problem-detector" / "verdict.sh", env=given)
        assert plugin.stdout.startswith(f"collbench: {word or 'UNKNOWN'} "), plugin.stderr
        assert (plugin.returncode, status(batch), status(fleet)) == expected, word
        assert json.loads((tmp_path / "fleet" / "n7" / "check.json").read_text())["word"] == (word or "UNKNOWN")
    (place / "collbench").unlink()
    assert status(fleet) != 0
    assert not (tmp_path / "fleet" / "n7" / "check.json").exists(), "a verdict of another night"
