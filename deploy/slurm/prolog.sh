#!/bin/bash
# Slurm's Prolog: a check before a job; a node that fails it is drained with the reason, and the job goes elsewhere.
# slurm.conf: Prolog=/etc/slurm/prolog.d/*, PrologFlags=Alloc, PrologEpilogTimeout=120, SchedulerParameters with
# nohold_on_prolog_fail (or the job is held), MessageTimeout and BatchStartTimeout above LIMIT (Slurm's default is 10 s).
# To change: EVERY, the seconds in which a node is checked at most once; LIMIT, the seconds that a job waits at most.
# For nodes that are given to a job as a whole: beside another job a check disturbs and is disturbed.
export PATH=${COLLBENCH_BIN:-/opt/collbench/bin}:/usr/sbin:/usr/bin:/sbin:/bin  # Slurm sets none
: "${EVERY:=3600}" "${LIMIT:=40}" "${FOLDER:=/var/lib/collbench}"
export COLLBENCH_STATE=$FOLDER COLLBENCH_CACHE=$FOLDER/cache CUPY_CACHE_DIR=$FOLDER/cupy
read -ra words <<<"${CHECK:---budget 10s -b 1M -e 64M}"

mkdir -p "$FOLDER"
last=$(stat -c %Y "$FOLDER/checked" 2>/dev/null || echo 0)
(($(date +%s) - last < EVERY)) && exit 0
# The reason is empty unless the verdict is FAIL: a check that ends late, or knows nothing, drains no node.
reason=$(timeout --kill-after=5 "$LIMIT" collbench check --drain-reason "${words[@]}" 2>"$FOLDER/prolog.log")
if [[ -n $reason ]]; then
  timeout 10 scontrol update nodename="$SLURMD_NODENAME" state=drain reason="$reason"
  exit 1
fi
touch "$FOLDER/checked"
