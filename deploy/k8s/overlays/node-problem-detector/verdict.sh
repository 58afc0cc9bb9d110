#!/bin/sh
# node-problem-detector's plugin: says what the last `collbench check --exit npd` on this node said, with its status.
# To change: the folder, here and in daemonset-patch.yaml and cronjob.yaml; the minutes for which OK holds, two days.
verdict=${COLLBENCH_VERDICT:-/var/lib/collbench/verdict}
read -r status line 2>/dev/null < "$verdict" || status=2 line="collbench: no check yet"
if [ "$status" = 0 ] && [ -n "$(find "$verdict" -mmin +2880)" ]; then
  status=2 line="collbench: UNKNOWN the last check was OK, more than two days ago"
fi
echo "$line"
exit "$status"
