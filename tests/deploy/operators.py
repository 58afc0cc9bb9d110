"""What operators' resources may hold, as JSON schemas: names and kinds of fields, written after their Go types.

Sources, all Apache-2.0: kubeflow/mpi-operator pkg/apis/kubeflow/v2beta1/types.go (launcherCreationPolicy, MPICH and
runLauncherAsWorker as in release 0.6); kubernetes-sigs/jobset api/jobset/v1alpha2/jobset_types.go (0336a8fd9f);
kubeflow/trainer pkg/apis/trainer/v1alpha1/trainjob_types.go (0015772c28); nebius/soperator
api/v1alpha1/activecheck_types.go (8c991c32f2); kubernetes/node-problem-detector
pkg/custompluginmonitor/types/config.go (01a6793b0d).  What Kubernetes defines itself (pods, Jobs) may be anything here:
kubernetes-validate reads it.
"""

from typing import Any

Schema = dict[str, Any]
TEXT: Schema = {"type": "string", "minLength": 1}
KINDS: dict[str, Schema] = {
    "any": {},
    "count": {"type": "integer", "minimum": 0},
    "flag": {"type": "boolean"},
    "text": TEXT,
    "texts": {"type": "array", "items": TEXT},
    "time": {"type": "string", "pattern": r"^\d+(ms|s|m|h)$"},
}


def record(needed: str, simple: str, **fields: Schema) -> Schema:
    """An object of these fields and no others; `simple` lists them as `kind name name; kind name`, or `A|B name`."""
    for group in filter(None, simple.split("; ")):
        kind, *names = group.split()
        fields |= dict.fromkeys(names, KINDS.get(kind, {"enum": kind.split("|")}))
    return {"type": "object", "properties": fields, "required": needed.split(), "additionalProperties": False}


def several(items: Schema) -> Schema:
    return {"type": "array", "items": items, "minItems": 1}


def resource(version: str, kind: str, spec: Schema) -> Schema:
    return record("apiVersion kind metadata spec", f"{version} apiVersion; {kind} kind; any metadata", spec=spec)


REPLICAS = record("template", "count replicas; any template; Never|OnFailure|Always restartPolicy")
MPIJOB = record(
    "mpiReplicaSpecs",
    "count slotsPerWorker; flag runLauncherAsWorker; text sshAuthMountPath; "
    "AtStartup|WaitForWorkersReady launcherCreationPolicy; OpenMPI|Intel|MPICH mpiImplementation",
    runPolicy=record(
        "",
        "count ttlSecondsAfterFinished activeDeadlineSeconds backoffLimit; any schedulingPolicy; flag suspend; "
        "All|Running|None cleanPodPolicy",
    ),
    mpiReplicaSpecs=record("Launcher Worker", "", Launcher=REPLICAS, Worker=REPLICAS),
)
NODES = several(record("name template", "text name groupName; any template dependsOn; count replicas"))
JOBSET = record(
    "replicatedJobs",
    "flag suspend; count ttlSecondsAfterFinished; any coordinator successPolicy",
    replicatedJobs=NODES,
    network=record("", "flag enableDNSHostnames publishNotReadyAddresses; text subdomain"),
    failurePolicy=record("", "count maxRestarts; text restartStrategy; any rules"),
)
TRAINJOB = record(
    "runtimeRef",
    "any initializer runtimePatches; flag suspend; count activeDeadlineSeconds; text managedBy",
    runtimeRef=record("name", "text name apiGroup kind"),
    trainer=record("", "text image; texts command args; any env resourcesPerNode; count numNodes numProcPerNode"),
)
CONTAINER = record("", "text image appArmorProfile; texts command args; any env volumeMounts volumes")
SLURM_JOB = record(
    "",
    "text sbatchScriptRefName sbatchScript; flag eachWorkerJobArray eachWorkerJobs; count maxNumberOfJobs",
    jobContainer=CONTAINER,
    mungeContainer=CONTAINER,
)
DRAIN = record("", "flag setHardwareIssueSuspected")
REACTIONS = record("", "flag commentSlurmNode; any addReservation removeReservation", drainSlurmNode=DRAIN)
ACTIVECHECK = record(
    "name slurmClusterRefName",
    "text name slurmClusterRefName schedule podTemplateNameRef; texts dependsOn; flag suspend runAfterCreation; "
    "count activeDeadlineSeconds successfulJobsHistoryLimit failedJobsHistoryLimit; "
    "any nodeSelector affinity tolerations k8sJobSpec; k8sJob|slurmJob checkType",
    slurmJobSpec=SLURM_JOB,
    successReactions=REACTIONS,
    failureReactions=REACTIONS,
)
RULE = "temporary|permanent type; text condition reason path; texts args; time timeout invoke_interval"
MONITOR = record(
    "plugin source conditions rules",
    "text source; flag metricsReporting; custom plugin",
    pluginConfig=record(
        "",
        "time invoke_interval timeout; count max_output_length concurrency; "
        "flag enable_message_change_based_condition_update skip_initial_status",
    ),
    conditions=several(record("type reason message", "text type reason message")),
    rules=several(record("type reason path", RULE)),
)
SCHEMAS = {
    "MPIJob": resource("kubeflow.org/v2beta1", "MPIJob", MPIJOB),
    "JobSet": resource("jobset.x-k8s.io/v1alpha2", "JobSet", JOBSET),
    "TrainJob": resource("trainer.kubeflow.org/v1alpha1", "TrainJob", TRAINJOB),
    "ActiveCheck": resource("slurm.nebius.ai/v1alpha1", "ActiveCheck", ACTIVECHECK),
}
