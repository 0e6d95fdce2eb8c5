#!/bin/sh
# One suite on many nodes of a Slurm cluster, all into one store on a PostgreSQL server. Settings come from the environment:
#
#   STORE        the store, without its password        postgresql+psycopg://me@db.cluster/results
#   NODES        number of nodes                         (4)
#   PARTITION    of Slurm                                (the cluster's default)
#   SUITE        the suite to measure                    (quick)
#   FRAMEWORKS   environments, separated by blanks       (torch)
#   OPTIONS      more options of `dlbench fleet run`     (none), such as "--frameworks torch --slurm-option constraint=zen4"
#   HOME_KIND    shared: environments are in one folder that every node sees; node: each node builds its own   (shared)
#   DLBENCH_HOME their folder                            (shared: ~/dlbench-home; node: /var/tmp/dlbench-USER)
#   DLBENCH      the command                             (dlbench)
#
#   slurm-fleet.sh check     checks that everything is in place
#   slurm-fleet.sh start     builds missing environments, and submits one job for each node
#   slurm-fleet.sh status    shows the state of the jobs
#   slurm-fleet.sh report    shows which node is slow, by how much, and at what
#   slurm-fleet.sh           check, then start
#
# Run it where sbatch works, in a folder that every node sees at the same path, because logs go there. dlbench with its
# extra `fleet` must be installed there too, once: in a clone,
# python3 -m venv ~/dlbench && ~/dlbench/bin/pip install '.[fleet]'
set -eu

dlbench=${DLBENCH:-dlbench}
home_kind=${HOME_KIND:-shared}

fail() {
  echo "slurm-fleet: $1" >&2
  exit 2
}

[ -n "${STORE:-}" ] || fail "STORE is not set: write STORE=postgresql+psycopg://USER@HOST/DATABASE"
case $STORE in
  # Every user of the cluster can read the arguments of a command and of a job.
  *://*:*@*) fail "STORE has a password: put it into ~/.pgpass (host:port:database:user:password) instead" ;;
esac
# Every command below takes the store from this variable, and so does every job: sbatch passes the environment on.
export DLBENCH_STORE="$STORE"

case $home_kind in
  shared) DLBENCH_HOME=${DLBENCH_HOME:-$HOME/dlbench-home} ;;
  # A framework starts faster from a node's own disk than from a busy network drive, but each node needs a build.
  node) DLBENCH_HOME=${DLBENCH_HOME:-/var/tmp/dlbench-$(id -un)} ;;
  *) fail "HOME_KIND is $home_kind: there are shared and node" ;;
esac
export DLBENCH_HOME

check() {
  for program in "$dlbench" sbatch squeue sinfo; do
    command -v "$program" >/dev/null || fail "$program was not found"
  done
  # The PostgreSQL driver ignores a password file that others may read, and every job would be refused.
  if [ -e "$HOME/.pgpass" ]; then
    [ -z "$(find "$HOME/.pgpass" ! -perm 600 ! -perm 400)" ] || fail "others may read ~/.pgpass: chmod 600 ~/.pgpass"
  else
    echo "slurm-fleet: there is no ~/.pgpass; that is right only where the server asks for no password" >&2
  fi
}

start() {
  if [ "$home_kind" = shared ]; then
    # Built once, here: many nodes that build into one folder at once would only wait for one another. This machine must
    # have the nodes' Python and system libraries; else build in a job: srun -N1 dlbench env build ...
    # shellcheck disable=SC2086 # several names
    "$dlbench" env build ${FRAMEWORKS:-torch}
  fi
  # shellcheck disable=SC2086 # several words
  "$dlbench" fleet run "${SUITE:-quick}" --on slurm ${PARTITION:+--partition "$PARTITION"} --nodes "${NODES:-4}" \
    --store "$STORE" ${OPTIONS:-}
}

case ${1:-} in
  "")
    check
    start
    ;;
  check) check ;;
  start) start ;;
  status) "$dlbench" fleet status --store "$STORE" ;;
  report) "$dlbench" report fleet --store "$STORE" ;;
  *) fail "there is no part $1. There are: check start status report" ;;
esac
