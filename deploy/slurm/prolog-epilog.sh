#!/bin/bash
# Slurm's Prolog and Epilog: a check before a job, and one after it; a node that fails it is drained with the reason.
# slurm.conf: Prolog=/etc/slurm/prolog-epilog.sh and Epilog=/etc/slurm/prolog-epilog.sh, or one of them.  After SLOW or WRONG the
# prolog sends the job elsewhere; the epilog delays nobody's start.  Besides: PrologFlags=Alloc, PrologEpilogTimeout=120,
# SchedulerParameters with nohold_on_prolog_fail (or the job is held), MessageTimeout and BatchStartTimeout above LIMIT (Slurm's
# default is 10 s).  Needs jq.
# To change: EVERY, the seconds in which a node is checked at most once; LIMIT, the seconds that a node is kept at most
# (a CPU node of two cores may take longer than 40); CHECK, the options of the check;
# NO_VERDICT=drain, and a node on which no check could be carried out (collbench is missing, or ends with an error or after
# LIMIT) is drained; by default it stays, and syslog and prolog.log or epilog.log in FOLDER say so.
# For nodes that are given to a job as a whole: beside another job a check disturbs and is disturbed.
export PATH=${COLLBENCH_BIN:-/opt/collbench/bin}:/usr/sbin:/usr/bin:/sbin:/bin  # Slurm sets none
: "${FOLDER:=/var/lib/collbench}"
if [[ ${SLURM_SCRIPT_CONTEXT:-} == epilog* ]]; then
  : "${EVERY:=86400}" "${LIMIT:=100}" "${CHECK:=--budget 60s}"
  name=epilog stamps=("$FOLDER/checked-at-length" "$FOLDER/checked") failed=0  # 1 would be the reason: "Epilog error"
else
  : "${EVERY:=3600}" "${LIMIT:=40}" "${CHECK:=--budget 30s -b 1M -e 64M}"
  name=prolog stamps=("$FOLDER/checked") failed=1
fi
export COLLBENCH_STATE=$FOLDER COLLBENCH_CACHE=$FOLDER/cache CUPY_CACHE_DIR=$FOLDER/cupy
verdict=$FOLDER/$name.json log=$FOLDER/$name.log
read -ra words <<<"$CHECK"

mkdir -p "$FOLDER"
last=$(stat -c %Y "${stamps[0]}" 2>/dev/null || echo 0)
(($(date +%s) - last < EVERY)) && exit 0
timeout --kill-after=5 "$LIMIT" collbench check --json "$verdict" "${words[@]}" >/dev/null 2>"$log"
status=$?
reason='' why=''
case $status in
  0 | 4) ;;  # UNKNOWN drains no node
  3)  # SLOW or WRONG: the line without the topology, in 100 signs that Slurm and shells take
    reason=$(jq -r '(.where as $where | .what | rtrimstr(" \($where)")) as $what
      | "\(.word) \($what | sub("^[a-z]+(,[a-z]+){2,}$"; "several collectives")): \(.reason)"
      | gsub("[^A-Za-z0-9.,_:@/#%()-]+"; " ") | "collbench: \(.)"[:100]' "$verdict" 2>>"$log") \
      || reason="collbench: SLOW or WRONG, see $verdict"
    ;;
  126 | 127) why="collbench: this node is not checked: cannot start ${PATH%%:*}/collbench" ;;
  124 | 137) why="collbench: the check did not end within $LIMIT s" ;;
  *) why="collbench: no verdict, exit status $status: $(tail -n 1 "$log")" ;;
esac
if [[ -n $why ]]; then
  echo "$why" | tee -a "$log" >&2
  logger -t collbench "$why" 2>/dev/null
  [[ ${NO_VERDICT:-} == drain ]] && reason=$(tr -dc 'A-Za-z0-9 .,_:@/#%()-' <<<"${why:0:100}")
fi
if [[ -n $reason ]]; then
  timeout 10 scontrol update nodename="$SLURMD_NODENAME" state=drain reason="$reason"
  exit "$failed"
fi
# Where collbench is missing, the next job finds out whether it is there again.
((status == 126 || status == 127)) || touch "${stamps[@]}"
exit 0
