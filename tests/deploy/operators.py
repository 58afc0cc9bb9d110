"""What operators' resources may hold, as JSON schemas: names and kinds of fields, written after their Go types.

Sources, all Apache-2.0: kubeflow/mpi-operator pkg/apis/kubeflow/v2beta1/types.go (launcherCreationPolicy, MPICH and
runLauncherAsWorker as in release 0.6); kubernetes-sigs/jobset api/jobset/v1alpha2/jobset_types.go (0336a8fd9f);
kubeflow/trainer pkg/apis/trainer/v1alpha1/trainjob_types.go (0015772c28); nebius/soperator
api/v1alpha1/activecheck_types.go (8c991c32f2); kubernetes/node-problem-detector
pkg/custompluginmonitor/types/config.go (01a6793b0d).  What Kubernetes defines itself (pods, Jobs) is `ANY` here, and
validated by kubernetes-validate.
"""

from typing import Any

Schema = dict[str, Any]
ANY: Schema = {}
TEXT: Schema = {"type": "string", "minLength": 1}
FLAG: Schema = {"type": "boolean"}
COUNT: Schema = {"type": "integer", "minimum": 0}
PLACE: Schema = {"type": "string", "pattern": "^/"}
TIME: Schema = {"type": "string", "pattern": r"^\d+(ms|s|m|h)$"}


def texts() -> Schema:
    return {"type": "array", "items": TEXT}


def several(items: Schema) -> Schema:
    return {"type": "array", "items": items, "minItems": 1}


def choice(*words: str) -> Schema:
    return {"enum": list(words)}


def record(needed: str, **fields: Schema) -> Schema:
    """An object with these fields and no others, of which some are needed."""
    return {"type": "object", "properties": fields, "required": needed.split(), "additionalProperties": False}


def resource(version: str, kind: str, spec: Schema) -> Schema:
    return record(
        "apiVersion kind metadata spec", apiVersion={"const": version}, kind={"const": kind}, metadata=ANY, spec=spec
    )


REPLICAS = record("template", replicas=COUNT, restartPolicy=choice("Never", "OnFailure", "Always"), template=ANY)
MPIJOB = resource(
    "kubeflow.org/v2beta1",
    "MPIJob",
    record(
        "mpiReplicaSpecs",
        slotsPerWorker=COUNT,
        runLauncherAsWorker=FLAG,
        runPolicy=record(
            "",
            cleanPodPolicy=choice("All", "Running", "None"),
            ttlSecondsAfterFinished=COUNT,
            activeDeadlineSeconds=COUNT,
            backoffLimit=COUNT,
            schedulingPolicy=ANY,
            suspend=FLAG,
        ),
        mpiReplicaSpecs=record("Launcher Worker", Launcher=REPLICAS, Worker=REPLICAS),
        sshAuthMountPath=PLACE,
        launcherCreationPolicy=choice("AtStartup", "WaitForWorkersReady"),
        mpiImplementation=choice("OpenMPI", "Intel", "MPICH"),
    ),
)
JOBSET = resource(
    "jobset.x-k8s.io/v1alpha2",
    "JobSet",
    record(
        "replicatedJobs",
        replicatedJobs=several(
            record("name template", name=TEXT, groupName=TEXT, template=ANY, replicas=COUNT, dependsOn=ANY)
        ),
        network=record("", enableDNSHostnames=FLAG, subdomain=TEXT, publishNotReadyAddresses=FLAG),
        successPolicy=record("operator", operator=choice("All", "Any"), targetReplicatedJobs=texts()),
        failurePolicy=record(
            "",
            maxRestarts=COUNT,
            restartStrategy=choice("Recreate", "BlockingRecreate", "InPlaceRestart"),
            rules=several(ANY),
        ),
        suspend=FLAG,
        coordinator=record("replicatedJob", replicatedJob=TEXT, jobIndex=COUNT, podIndex=COUNT),
        ttlSecondsAfterFinished=COUNT,
    ),
)
TRAINJOB = resource(
    "trainer.kubeflow.org/v1alpha1",
    "TrainJob",
    record(
        "runtimeRef",
        runtimeRef=record("name", name=TEXT, apiGroup=TEXT, kind=TEXT),
        initializer=ANY,
        trainer=record(
            "",
            image=TEXT,
            command=texts(),
            args=texts(),
            env=ANY,
            numNodes=COUNT,
            resourcesPerNode=ANY,
            numProcPerNode=COUNT,
        ),
        runtimePatches=ANY,
        suspend=FLAG,
        activeDeadlineSeconds=COUNT,
        managedBy=TEXT,
    ),
)
CONTAINER = record(
    "", image=TEXT, command=texts(), args=texts(), env=ANY, volumeMounts=ANY, volumes=ANY, appArmorProfile=TEXT
)
RESERVATION = record("", prefix=TEXT)
REACTIONS = record(
    "",
    drainSlurmNode=record("", setHardwareIssueSuspected=FLAG),
    commentSlurmNode=FLAG,
    addReservation=RESERVATION,
    removeReservation=RESERVATION,
)
ACTIVECHECK = resource(
    "slurm.nebius.ai/v1alpha1",
    "ActiveCheck",
    record(
        "name slurmClusterRefName",
        name=TEXT,
        slurmClusterRefName=TEXT,
        dependsOn=texts(),
        schedule=TEXT,
        suspend=FLAG,
        activeDeadlineSeconds=COUNT,
        successfulJobsHistoryLimit=COUNT,
        failedJobsHistoryLimit=COUNT,
        runAfterCreation=FLAG,
        nodeSelector=ANY,
        affinity=ANY,
        tolerations=ANY,
        podTemplateNameRef=TEXT,
        k8sJobSpec=record("", jobContainer=CONTAINER, scriptRefName=TEXT),
        slurmJobSpec=record(
            "",
            jobContainer=CONTAINER,
            mungeContainer=CONTAINER,
            sbatchScriptRefName=TEXT,
            sbatchScript=TEXT,
            eachWorkerJobArray=FLAG,
            eachWorkerJobs=FLAG,
            maxNumberOfJobs=COUNT,
        ),
        checkType=choice("k8sJob", "slurmJob"),
        successReactions=REACTIONS,
        failureReactions=REACTIONS,
    ),
)
MONITOR = record(
    "plugin source conditions rules",
    plugin={"const": "custom"},
    pluginConfig=record(
        "",
        invoke_interval=TIME,
        timeout=TIME,
        max_output_length=COUNT,
        concurrency=COUNT,
        enable_message_change_based_condition_update=FLAG,
        skip_initial_status=FLAG,
    ),
    source=TEXT,
    metricsReporting=FLAG,
    conditions=several(record("type reason message", type=TEXT, reason=TEXT, message=TEXT)),
    rules=several(
        record(
            "type reason path",
            type=choice("temporary", "permanent"),
            condition=TEXT,
            reason=TEXT,
            path=PLACE,
            args=texts(),
            timeout=TIME,
            invoke_interval=TIME,
        )
    ),
)
SCHEMAS = {"MPIJob": MPIJOB, "JobSet": JOBSET, "TrainJob": TRAINJOB, "ActiveCheck": ACTIVECHECK}
