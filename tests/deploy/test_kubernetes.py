"""What kustomize makes of base and overlays is valid by the schemas of Kubernetes and operators, and fits together."""

import json
import os
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT, of_a_user
from tests.deploy.operators import MONITOR, SCHEMAS
from tests.deploy.programs import DEPLOY, GOOD, SLOW, collbench_with, passes, program, run, stand_in, written

pytestmark = pytest.mark.deploy

K8S = DEPLOY / "k8s"
OVERLAYS = {path.name: path for path in sorted((K8S / "overlays").iterdir())}
Resource = dict[str, Any]


def built(folder: Path) -> list[Resource]:
    """All resources that `kubectl apply -k` would send."""
    return list(yaml.safe_load_all(passes("kubectl", "kustomize", folder)))


@pytest.fixture(scope="module")
def resources() -> dict[str, list[Resource]]:
    """Of the base, and of each overlay."""
    return {"base": built(K8S / "base")} | {name: built(path) for name, path in OVERLAYS.items()}


def kind(found: list[Resource], name: str) -> Resource:
    """The only resource of that kind."""
    [one] = [resource for resource in found if resource["kind"] == name]
    return one


def valid(resource: Resource, folder: Path) -> str:
    """What kubernetes-validate complains of; "" if it does not."""
    path = folder / "resource.yaml"
    path.write_text(yaml.safe_dump(resource), encoding="utf-8")
    done = run(program("kubernetes-validate"), "--strict", "--quiet", path)
    return "" if done.returncode == 0 else done.stdout + done.stderr or "invalid"


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


def problems(resource: Resource) -> list[str]:
    """What an operator's schema complains of."""
    from jsonschema import Draft202012Validator

    return [error.message for error in Draft202012Validator(SCHEMAS[resource["kind"]]).iter_errors(resource)]


def test_everything_is_valid_and_every_overlay_is_tried(resources: dict[str, list[Resource]], tmp_path: Path) -> None:
    kinds = {name: [resource["kind"] for resource in found] for name, found in resources.items()}
    assert {name: sorted(found) for name, found in kinds.items()} == {
        "base": ["CronJob", "Job"],
        "fleet": ["Job"],
        "indexed-job": ["Job", "Service"],
        "jobset-kueue": ["JobSet"],
        "mpijob": ["MPIJob"],
        "node-problem-detector": ["ConfigMap", "CronJob"],
        "soperator": ["ActiveCheck"],
        "trainjob": ["TrainJob"],
    }
    for name, found in resources.items():
        for resource in found:
            if resource["kind"] in SCHEMAS:
                assert problems(resource) == [], name
            else:
                assert valid(resource, tmp_path) == "", name


def test_the_pods_and_jobs_in_operators_resources_are_valid(
    resources: dict[str, list[Resource]], tmp_path: Path
) -> None:
    mpijob, jobset = kind(resources["mpijob"], "MPIJob"), kind(resources["jobset-kueue"], "JobSet")
    roles = mpijob["spec"]["mpiReplicaSpecs"]
    for role in roles.values():
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": role["template"]["spec"]}
        assert valid(pod, tmp_path) == ""
    for replicated in jobset["spec"]["replicatedJobs"]:
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}} | replicated["template"]
        assert valid(job, tmp_path) == ""


def test_a_misspelt_field_is_found(resources: dict[str, list[Resource]], tmp_path: Path) -> None:
    """By either kind of schema."""
    job = deepcopy(kind(resources["base"], "Job"))
    job["spec"]["backofLimit"] = job["spec"].pop("backoffLimit")
    assert "backofLimit" in valid(job, tmp_path)
    for name, resource in (("mpijob", "MPIJob"), ("trainjob", "TrainJob"), ("soperator", "ActiveCheck")):
        changed = deepcopy(kind(resources[name], resource))
        changed["spec"]["suspended"] = True
        assert len(problems(changed)) == 1, name


def test_pods_share_image_gpus_and_memory_of_the_base(resources: dict[str, list[Resource]]) -> None:
    """So that a site states them once; a launcher computes nothing."""
    [template] = pods(kind(resources["base"], "Job"))
    [base] = template["spec"]["containers"]
    images = {"mpijob": "mpi", "indexed-job": "ngc", "jobset-kueue": "ngc", "trainjob": "ngc"}
    found = 0
    for name in (name for name in resources if name != "soperator"):
        trained = [resource["spec"]["trainer"] for resource in resources[name] if resource["kind"] == "TrainJob"]
        containers = [container for pod in pods(resources[name]) for container in pod["spec"]["containers"]]
        for container in containers + trained:
            assert container["image"] == f"registry.example.com/collbench:{images.get(name, 'latest')}", name
            if container.get("name") != "launcher":
                assert container.get("resources", container.get("resourcesPerNode")) == base["resources"], name
                found += 1
    assert found == 8


def test_every_mount_has_its_volume_and_shared_memory_is_memory(resources: dict[str, list[Resource]]) -> None:
    for name, found in resources.items():
        for pod in pods(found):
            volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes", [])}
            for container in pod["spec"]["containers"]:
                mounts = {mount["mountPath"]: mount["name"] for mount in container.get("volumeMounts", [])}
                assert set(mounts.values()) <= set(volumes), name
                if container["name"] != "launcher":
                    assert volumes[mounts["/dev/shm"]]["emptyDir"]["medium"] == "Memory", name


def test_processes_are_as_many_as_gpus(resources: dict[str, list[Resource]]) -> None:
    """Whoever changes the number of nodes has to change all of these."""
    jobset = kind(resources["jobset-kueue"], "JobSet")["spec"]["replicatedJobs"][0]["template"]
    for job in (kind(resources["indexed-job"], "Job"), jobset):
        [container] = job["spec"]["template"]["spec"]["containers"]
        assert f"--nnodes={job['spec']['completions']}" in container["command"]
        assert f"--nproc-per-node={container['resources']['limits']['nvidia.com/gpu']}" in container["command"]
        assert job["spec"]["completions"] == job["spec"]["parallelism"]
    spec = kind(resources["mpijob"], "MPIJob")["spec"]
    workers = spec["mpiReplicaSpecs"]["Worker"]
    [worker] = workers["template"]["spec"]["containers"]
    [launcher] = spec["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"]
    assert spec["slotsPerWorker"] == worker["resources"]["limits"]["nvidia.com/gpu"]
    assert launcher["command"][:3] == ["mpiexec", "-n", str(workers["replicas"] * spec["slotsPerWorker"])]


def test_pods_find_the_first_by_a_name_that_there_is(resources: dict[str, list[Resource]]) -> None:
    """An indexed Job's pod is called JOB-INDEX in the Service's domain, a JobSet's SET-NAME-JOB-INDEX in its own."""
    job, service = kind(resources["indexed-job"], "Job"), kind(resources["indexed-job"], "Service")
    pod = job["spec"]["template"]["spec"]
    names = {"job": job["metadata"]["name"], "service": service["metadata"]["name"]}
    assert f"--master-addr={names['job']}-0.{names['service']}" in pod["containers"][0]["command"]
    assert (pod["subdomain"], service["spec"]["clusterIP"]) == (names["service"], "None")
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": names["job"]}
    jobset = kind(resources["jobset-kueue"], "JobSet")
    [replicated] = jobset["spec"]["replicatedJobs"]
    first = f"{jobset['metadata']['name']}-{replicated['name']}-0-0.{jobset['spec']['network']['subdomain']}"
    assert f"--master-addr={first}" in replicated["template"]["spec"]["template"]["spec"]["containers"][0]["command"]
    assert jobset["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]


def test_the_job_of_the_night_is_the_job(resources: dict[str, list[Resource]]) -> None:
    base = resources["base"]
    assert kind(base, "CronJob")["spec"]["jobTemplate"]["spec"] == kind(base, "Job")["spec"]


def test_an_answer_ends_the_job_and_no_answer_is_tried_again(resources: dict[str, list[Resource]]) -> None:
    """FAIL is 3 and a usage error 2; UNKNOWN, 4, may be OK the next time."""
    [rule] = kind(resources["base"], "Job")["spec"]["podFailurePolicy"]["rules"]
    assert (rule["action"], rule["onExitCodes"]["values"]) == ("FailJob", [2, 3])
    assert kind(resources["base"], "Job")["spec"]["backoffLimit"] > 0


def test_the_verdict_that_a_job_leaves_on_a_node_is_what_the_detector_says(
    resources: dict[str, list[Resource]], tmp_path: Path
) -> None:
    """With the exit status: 0 is healthy, 1 a problem, 2 unknown, as before the first check."""
    [pod] = pods(kind(resources["node-problem-detector"], "CronJob"))
    shell, option, command = pod["spec"]["containers"][0]["command"]
    plugin = OVERLAYS["node-problem-detector"] / "verdict.sh"
    place = {"COLLBENCH_VERDICT": str(tmp_path / "verdict")}
    first = run("/bin/sh", plugin, env=place)
    assert (first.returncode, first.stdout, first.stderr) == (2, "collbench: no check yet\n", "")
    for options, status, begin in ((GOOD, 0, "collbench: OK "), (SLOW, 1, "collbench: FAIL "), ("-b x", 2, "")):
        folder = collbench_with(tmp_path / "bin", options)
        surroundings = of_a_user() | {"PATH": f"{folder}:/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
        left = run(shell, option, command.replace("/node/", f"{tmp_path}/"), env=surroundings)
        assert left.returncode == 0, left.stderr
        said = run("/bin/sh", plugin, env=place)
        assert said.returncode == status, said.stdout
        assert said.stdout.startswith(begin), said.stdout
        assert len(said.stdout.encode()) <= 81


def test_a_node_whose_check_dies_or_is_never_started_again_does_not_keep_its_ok(
    resources: dict[str, list[Resource]], tmp_path: Path
) -> None:
    """FAIL stays, since a node that is kept from jobs is checked by none; what is killed says that it had started."""
    [pod] = pods(kind(resources["node-problem-detector"], "CronJob"))
    shell, option, command = pod["spec"]["containers"][0]["command"]
    verdict, plugin = tmp_path / "verdict", OVERLAYS["node-problem-detector"] / "verdict.sh"
    for status, later in (("0", 2), ("1", 1)):
        verdict.write_text(f"{status} collbench: as it was\n")
        assert run("/bin/sh", plugin, env={"COLLBENCH_VERDICT": str(verdict)}).returncode == int(status)
        os.utime(verdict, (0, 0))
        assert run("/bin/sh", plugin, env={"COLLBENCH_VERDICT": str(verdict)}).returncode == later
    for script, why in (("kill -9 0", "no verdict"), ("exit 127", "no verdict, exit status 127")):
        verdict.write_text("0 collbench: OK as it was\n")
        folder = stand_in(tmp_path / "bin", "collbench", script)
        surroundings = {"PATH": f"{folder}:/usr/bin:/bin"}
        run(shell, option, command.replace("/node/", f"{tmp_path}/"), env=surroundings, start_new_session=True)
        said = run("/bin/sh", plugin, env={"COLLBENCH_VERDICT": str(verdict)})
        assert said.returncode >= 2
        assert said.stdout.startswith("collbench: UNKNOWN "), said.stdout
        assert why in said.stdout


def test_the_detectors_configuration_is_complete_and_its_script_is_mounted(
    resources: dict[str, list[Resource]], tmp_path: Path
) -> None:
    from jsonschema import Draft202012Validator

    data = kind(resources["node-problem-detector"], "ConfigMap")["data"]
    monitor = json.loads(data["collbench.json"])
    assert [error.message for error in Draft202012Validator(MONITOR).iter_errors(monitor)] == []
    [rule] = monitor["rules"]
    assert rule["condition"] in [condition["type"] for condition in monitor["conditions"]]
    patched = built(detector(tmp_path))
    [pod] = pods(patched)
    assert valid(patched[0], tmp_path) == ""
    [container] = pod["spec"]["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    name = kind(resources["node-problem-detector"], "ConfigMap")["metadata"]["name"]
    assert volumes["collbench"]["configMap"] == {"name": name, "defaultMode": 0o755}
    assert rule["path"] == f"{mounts['collbench']}/verdict.sh"
    assert container["args"] == [f"--config.custom-plugin-monitor={mounts['collbench']}/collbench.json"]
    assert set(mounts) == {"log", "collbench", "collbench-verdict"}
    [job] = pods(kind(resources["node-problem-detector"], "CronJob"))
    left = next(volume["hostPath"] for volume in job["spec"]["volumes"] if volume["name"] == "node")
    assert volumes["collbench-verdict"]["hostPath"] == left
    assert f"{mounts['collbench-verdict']}/verdict" in data["verdict.sh"]


def detector(folder: Path) -> Path:
    """A kustomization with a small DaemonSet of node-problem-detector, and the patch that this project has for it."""
    labels = {"app": "node-problem-detector"}
    container = {
        "name": "node-problem-detector",
        "image": "npd",
        "command": ["/node-problem-detector"],
        "volumeMounts": [{"name": "log", "mountPath": "/var/log"}],
    }
    pod = {"containers": [container], "volumes": [{"name": "log", "hostPath": {"path": "/var/log"}}]}
    daemonset = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "node-problem-detector"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}},
    }
    patch = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "node-problem-detector"}}
    patch |= written(OVERLAYS["node-problem-detector"] / "daemonset-patch.yaml")
    for name, content in (
        ("daemonset", daemonset),
        ("patch", patch),
        ("kustomization", {"resources": ["daemonset.yaml"], "patches": [{"path": "patch.yaml"}]}),
    ):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    return folder


def test_soperator_drains_a_worker_that_fails_and_none_of_which_nothing_is_known(
    resources: dict[str, list[Resource]], tmp_path: Path
) -> None:
    script = kind(resources["soperator"], "ActiveCheck")["spec"]["slurmJobSpec"]["sbatchScript"]
    for options, passed in ((GOOD, True), (SLOW, False), (GOOD.partition("--reference")[0], True)):
        folder = collbench_with(tmp_path / "bin", options)
        done = run("/bin/bash", "-c", script.replace("/opt/collbench/bin", str(folder)), env=of_a_user())
        assert (done.returncode == 0) is passed, done.stdout


def test_a_pod_of_a_fleet_leaves_a_verdict_for_its_node_and_fails_only_if_it_cannot(
    resources: dict[str, list[Resource]], tmp_path: Path
) -> None:
    [pod] = pods(kind(resources["fleet"], "Job"))
    shell, option, command = pod["spec"]["containers"][0]["command"]
    given = of_a_user() | {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "NODE": "node7"}
    for options, passed, verdict in ((SLOW, True, "FAIL"), (GOOD, True, "OK"), ("--run missing", False, "UNKNOWN")):
        collbench_with(tmp_path / "bin", options)
        done = run(shell, option, command.replace("/fleet/", f"{tmp_path}/fleet/"), env=given)
        left = tmp_path / "fleet" / "node7" / "check.json"
        assert (done.returncode == 0) is passed, done.stderr
        assert json.loads(left.read_text())["status"] == verdict
    (tmp_path / "bin" / "collbench").unlink()
    assert run(shell, option, command.replace("/fleet/", f"{tmp_path}/fleet/"), env=given).returncode != 0
    assert not left.exists()
