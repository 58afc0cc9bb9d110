#!/bin/bash
# Slurm's Epilog: a check after a job, which delays nobody's start; a node that fails it is drained with the reason.
# slurm.conf: Epilog=/etc/slurm/epilog.d/*, PrologEpilogTimeout=120.  For nodes that are given to a job as a whole.
# To change: EVERY, the seconds in which a node is checked at most once; LIMIT, how long the node is kept at most;
# NO_VERDICT=drain, and a node on which no check could be carried out (collbench is missing, or ends with an error or after
# LIMIT) is drained; by default it stays, and syslog and $FOLDER/epilog.log say so.
export PATH=${COLLBENCH_BIN:-/opt/collbench/bin}:/usr/sbin:/usr/bin:/sbin:/bin  # Slurm sets none
: "${EVERY:=86400}" "${LIMIT:=100}" "${FOLDER:=/var/lib/collbench}"
export COLLBENCH_STATE=$FOLDER COLLBENCH_CACHE=$FOLDER/cache CUPY_CACHE_DIR=$FOLDER/cupy
read -ra words <<<"${CHECK:---budget 60s}"

mkdir -p "$FOLDER"
last=$(stat -c %Y "$FOLDER/checked-at-length" 2>/dev/null || echo 0)
(($(date +%s) - last < EVERY)) && exit 0
reason=$(timeout --kill-after=5 "$LIMIT" collbench check --drain-reason "${words[@]}" 2>"$FOLDER/epilog.log")
status=$?
case $status in
  0 | 3 | 4) why= ;;
  126 | 127) why="collbench: this node is not checked: cannot start ${PATH%%:*}/collbench" ;;
  124 | 137) why="collbench: the check did not end within $LIMIT s" ;;
  *) why="collbench: no verdict, exit status $status: $(tail -n 1 "$FOLDER/epilog.log")" ;;
esac
if [[ -n $why ]]; then
  echo "$why" | tee -a "$FOLDER/epilog.log" >&2
  logger -t collbench "$why" 2>/dev/null
  [[ ${NO_VERDICT:-} == drain ]] && reason=$(tr -dc 'A-Za-z0-9 .,_:@/#%()-' <<<"${why:0:100}")
fi
if [[ -n $reason ]]; then
  timeout 10 scontrol update nodename="$SLURMD_NODENAME" state=drain reason="$reason"
elif ((status != 126 && status != 127)); then  # the next job finds out whether it is there
  touch "$FOLDER/checked-at-length" "$FOLDER/checked"
fi
exit 0  # another status would drain the node, too, with "Epilog error" for a reason
