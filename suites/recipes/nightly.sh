#!/usr/bin/env bash
# A nightly gate for cron or systemd. Settings come from the environment:
#
#   DLBENCH          the command                                   (dlbench)
#   SUITE            the suite to measure                          (quick)
#   OPTIONS          sides, axes, budget, as for `dlbench gate`    (none)
#   FOLDER           store and reports, one folder for each night  (~/dlbench-nightly)
#   SITE             pages of all nights, for any web server       (FOLDER/site)
#   ON_REGRESSION    a command that gets the report on stdin       (cat)
#
# Exits as `dlbench gate` does: 0 passed, 1 a regression, 6 undecided (too little evidence; with
# OPTIONS="--undecided pass" such a night exits with 0), anything else a failure of the night itself.
set -uo pipefail
dlbench=${DLBENCH:-dlbench}
folder=${FOLDER:-$HOME/dlbench-nightly}
night=$folder/$(date -u +%Y-%m-%dT%H%M)
export DLBENCH_STORE=$folder/nightly.sqlite
mkdir -p "$night" || exit 2

# If the last night is still running, do nothing: two at once would disturb each other.
exec 9> "$folder/lock"
flock --nonblock 9 || { echo "nightly.sh: the last night is still running" >&2; exit 2; }

$dlbench doctor > "$night/doctor.txt" 2>&1
$dlbench gate "${SUITE:-quick}" ${OPTIONS:-} --write "$night/gate.md" --write "$night/gate.xml" > "$night/gate.txt" 2> "$night/log.txt"
code=$?
$dlbench history --plot "$night/history.png" > "$night/history.txt" 2> "$night/history-log.txt"
$dlbench report site --out "${SITE:-$folder/site}" > /dev/null 2> "$night/site-log.txt"
case $code in
  0) ;;
  1) ${ON_REGRESSION:-cat} < "$night/gate.txt" ;;
  6) tail -n 2 "$night/gate.txt" >&2 ;;
  *) tail -n 5 "$night/log.txt" >&2 ;;
esac
exit $code
