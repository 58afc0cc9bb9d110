"""What kustomize makes of base and overlays is valid by Kubernetes' schemas, and its commands do what they say."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT, of_a_user
from tests.deploy.programs import DEPLOY, GOOD, SLOW, collbench_with, passes, run, stand_in

pytestmark = pytest.mark.deploy

K8S = DEPLOY / "k8s"
DETECTOR = K8S / "overlays" / "node-problem-detector"
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
    """By folder and kind, of which there is one each."""
    found: Resources = {}
    for folder in (K8S / "base", *(K8S / "overlays").iterdir()):
        sent = yaml.safe_load_all(passes("kubectl", "kustomize", folder))
        found[folder.name] = {resource["kind"]: resource for resource in sent}
    return found


def pods(value: Any) -> Iterator[Resource]:
    """Yield every pod's template in a resource, however deep."""
    if isinstance(value, dict):
        if "containers" in value.get("spec", {}):
            yield value
        for inner in value.values():
            yield from pods(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from pods(inner)


def the_container(resource: Resource) -> Resource:
    """The only one of the only pod."""
    [pod] = pods(resource)
    [container] = pod["spec"]["containers"]
    return dict(container)


def test_every_overlay_is_built_and_its_pods_and_jobs_are_valid(resources: Resources, tmp_path: Path) -> None:
    """Also those that operators' resources hold, whose other fields are the operators' alone."""
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


def test_image_gpus_and_memory_are_those_of_the_base_and_mounts_have_volumes(resources: Resources) -> None:
    """So that a site states them once; a launcher computes nothing."""
    needs = the_container(resources["base"]["Job"])["resources"]
    images = {"mpijob": "mpi", "indexed-job": "ngc", "jobset-kueue": "ngc"}
    for name in resources.keys() - {"soperator", "trainjob"}:
        for pod in pods(resources[name]):
            [container] = pod["spec"]["containers"]
            user = pod["spec"]["securityContext"]["runAsUser"]
            assert user == (0 if name == "node-problem-detector" else 1000), name
            assert container["image"].endswith(f"/collbench:{images.get(name, 'latest')}"), name
            if container["name"] != "launcher":
                volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
                mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in container["volumeMounts"]}
                assert mounts["/dev/shm"]["emptyDir"]["medium"] == "Memory", name
                assert container["resources"] == needs, name
    trainer = resources["trainjob"]["TrainJob"]["spec"]["trainer"]
    assert (trainer["image"].rpartition(":")[2], trainer["resourcesPerNode"]) == ("ngc", needs)


def test_processes_are_as_many_as_gpus_and_find_the_first_by_a_name_that_there_is(resources: Resources) -> None:
    """An indexed Job's pod is called JOB-INDEX in the Service's domain, a JobSet's SET-NAME-JOB-INDEX in its own."""
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


def plugin(verdict: Path) -> tuple[int, str]:
    """Exit status and output of node-problem-detector's plugin."""
    done = run("/bin/sh", DETECTOR / "verdict.sh", env={"COLLBENCH_VERDICT": str(verdict)})
    assert done.stderr == ""
    return done.returncode, done.stdout


def test_the_detector_says_what_the_job_on_a_node_left_and_no_ok_of_another_night(
    resources: Resources, tmp_path: Path
) -> None:
    """0 is healthy, 1 a problem, 2 unknown; SLOW and WRONG stay: a node that is kept from jobs is checked by none."""
    shell, option, command = the_container(resources["node-problem-detector"]["CronJob"])["command"]
    verdict, bin_folder = tmp_path / "verdict", tmp_path / "bin"
    surroundings = of_a_user() | {"PATH": f"{bin_folder}:/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    assert plugin(verdict) == (2, "collbench: no check yet\n")
    for check, status, begin in (
        (GOOD, 0, "collbench: OK "),
        (SLOW, 1, "collbench: SLOW "),
        ("kill -9 0", 2, "collbench: UNKNOWN started"),
        ("exit 127", 127, "collbench: UNKNOWN no verdict, exit status 127"),
    ):
        if check in (GOOD, SLOW):
            collbench_with(bin_folder, check)
        else:
            stand_in(bin_folder, "collbench", check)
        words = (shell, option, command.replace("/node/", f"{tmp_path}/"))
        run(*words, env=surroundings, start_new_session=True)
        left, said = plugin(verdict)
        assert left == status, said
        assert said.startswith(begin)
        assert len(said.encode()) <= 81
    for before, later in (("0", 2), ("1", 1)):
        verdict.write_text(f"{before} collbench: as it was\n")
        assert plugin(verdict)[0] == int(before)
        os.utime(verdict, (0, 0))
        assert plugin(verdict)[0] == later


def test_soperator_drains_a_worker_that_fails_and_none_of_which_nothing_is_known(
    resources: Resources, tmp_path: Path
) -> None:
    script = resources["soperator"]["ActiveCheck"]["spec"]["slurmJobSpec"]["sbatchScript"]
    for options, passed in ((GOOD, True), (SLOW, False), (GOOD.partition("--reference")[0], True)):
        folder = collbench_with(tmp_path / "bin", options)
        done = run("/bin/bash", "-c", script.replace("/opt/collbench/bin", str(folder)), env=of_a_user())
        assert (done.returncode == 0) is passed, done.stdout


def test_a_pod_of_a_fleet_leaves_a_verdict_for_its_node_and_fails_only_if_it_cannot(
    resources: Resources, tmp_path: Path
) -> None:
    shell, option, command = the_container(resources["fleet"]["Job"])["command"]
    given = of_a_user() | {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "NODE": "node7"}
    left = tmp_path / "fleet" / "node7" / "check.json"

    def checked() -> CompletedProcess[str]:
        return run(shell, option, command.replace("/fleet/", f"{tmp_path}/fleet/"), env=given)

    for options, passed, verdict in ((SLOW, True, "SLOW"), (GOOD, True, "OK"), ("--run missing", False, "UNKNOWN")):
        collbench_with(tmp_path / "bin", options)
        done = checked()
        assert (done.returncode == 0) is passed, done.stderr
        assert json.loads(left.read_text())["word"] == verdict
    (tmp_path / "bin" / "collbench").unlink()
    assert checked().returncode != 0
    assert not left.exists()
