#!/bin/bash
# Slurm's Epilog: a check after a job, which delays nobody's start; a node that fails it is drained with the reason.
# slurm.conf: Epilog=/etc/slurm/epilog.d/*, PrologEpilogTimeout=120.  For nodes that are given to a job as a whole.
# To change: EVERY, the seconds in which a node is checked at most once; LIMIT, how long the node is kept at most.
export PATH=${COLLBENCH_BIN:-/opt/collbench/bin}:/usr/sbin:/usr/bin:/sbin:/bin  # Slurm sets none
: "${EVERY:=86400}" "${LIMIT:=100}" "${FOLDER:=/var/lib/collbench}"
export COLLBENCH_STATE=$FOLDER COLLBENCH_CACHE=$FOLDER/cache CUPY_CACHE_DIR=$FOLDER/cupy
read -ra words <<<"${CHECK:---budget 60s}"

mkdir -p "$FOLDER"
last=$(stat -c %Y "$FOLDER/checked-at-length" 2>/dev/null || echo 0)
(($(date +%s) - last < EVERY)) && exit 0
reason=$(timeout --kill-after=5 "$LIMIT" collbench check --drain-reason "${words[@]}" 2>"$FOLDER/epilog.log")
if [[ -n $reason ]]; then
  timeout 10 scontrol update nodename="$SLURMD_NODENAME" state=drain reason="$reason"
else
  touch "$FOLDER/checked-at-length" "$FOLDER/checked"
fi
exit 0  # another status would drain the node, too, with "Epilog error" for a reason
