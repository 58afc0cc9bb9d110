#!/bin/bash
# Slurm's Prolog: a check before a job; a node that fails it is drained with the reason, and the job goes elsewhere.
# slurm.conf: Prolog=/etc/slurm/prolog.d/*, PrologFlags=Alloc, PrologEpilogTimeout=120, SchedulerParameters with
# nohold_on_prolog_fail (or the job is held), MessageTimeout and BatchStartTimeout above LIMIT (Slurm's default is 10 s).
# To change: EVERY, the seconds in which a node is checked at most once; LIMIT, the seconds that a job waits at most
# (a CPU node of two cores may take longer than 40);
# NO_VERDICT=drain, and a node on which no check could be carried out (collbench is missing, or ends with an error or after
# LIMIT) is drained; by default it stays, and syslog and $FOLDER/prolog.log say so.
# For nodes that are given to a job as a whole: beside another job a check disturbs and is disturbed.
export PATH=${COLLBENCH_BIN:-/opt/collbench/bin}:/usr/sbin:/usr/bin:/sbin:/bin  # Slurm sets none
: "${EVERY:=3600}" "${LIMIT:=40}" "${FOLDER:=/var/lib/collbench}"
export COLLBENCH_STATE=$FOLDER COLLBENCH_CACHE=$FOLDER/cache CUPY_CACHE_DIR=$FOLDER/cupy
read -ra words <<<"${CHECK:---budget 10s -b 1M -e 64M}"

mkdir -p "$FOLDER"
last=$(stat -c %Y "$FOLDER/checked" 2>/dev/null || echo 0)
(($(date +%s) - last < EVERY)) && exit 0
# The reason is empty unless the verdict is FAIL: UNKNOWN drains no node.
reason=$(timeout --kill-after=5 "$LIMIT" collbench check --drain-reason "${words[@]}" 2>"$FOLDER/prolog.log")
status=$?
case $status in
  0 | 3 | 4) why= ;;
  126 | 127) why="collbench: this node is not checked: cannot start ${PATH%%:*}/collbench" ;;
  124 | 137) why="collbench: the check did not end within $LIMIT s" ;;
  *) why="collbench: no verdict, exit status $status: $(tail -n 1 "$FOLDER/prolog.log")" ;;
esac
if [[ -n $why ]]; then
  echo "$why" | tee -a "$FOLDER/prolog.log" >&2
  logger -t collbench "$why" 2>/dev/null
  [[ ${NO_VERDICT:-} == drain ]] && reason=$(tr -dc 'A-Za-z0-9 .,_:@/#%()-' <<<"${why:0:100}")
fi
if [[ -n $reason ]]; then
  timeout 10 scontrol update nodename="$SLURMD_NODENAME" state=drain reason="$reason"
  exit 1
fi
case $status in 126 | 127) exit 0 ;; esac  # the next job finds out whether it is there
touch "$FOLDER/checked"
