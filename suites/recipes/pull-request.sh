#!/usr/bin/env bash
# A gate for a pull request: measures your training step at its base and as checked out, in pairs of launches. The GitHub
# action and gitlab-gate.yml run it. So can any other CI, or you in a clone. Settings come from the environment:
#
#   STEP             your training step (`dlbench new step FILE`), in a folder without the package: modules beside it are
#                    imported before installed ones                        (benchmarks/train_step.py)
#   BASE             the revision to compare with                          (origin/main)
#   BASELINE_STEP    another step to compare with, instead of a revision   (none)
#   INSTALL          installs the package in the current folder for "$PYTHON", once for each side; empty: nothing is
#                    installed, and the step's file differs               ("$PYTHON" -m pip install --quiet . numpy)
#   INTERPRETER      has the step's framework where nothing is installed, and makes virtual environments   (python3)
#   THRESHOLD        the smallest slowdown that is a regression            (2.5%)
#   BUDGET           time for the measurement                              (30m)
#   OPTIONS          further options of `dlbench gate`, split at spaces    (--threads cores)
#   FORMAT           the report on standard output: terminal, or github for annotations               (terminal)
#   QUALIFY          true: find out which slowdowns a gate sees on this kind of machine, at its first gate   (true)
#   DLBENCH          the command; empty: it is installed from DLBENCH_SOURCE, a release, URL or folder    (dlbench)
#
# .dlbench/report has the comment, the report as JSON and JUnit XML, the store, and the slowdowns that a gate finds on
# this machine: keep .dlbench/qualified between jobs. Exits as `dlbench gate` does: 0 passed, 1 a regression, 5 no number
# where the base has one, 6 undecided, 7 other results. Anything else is a failure of the job itself.
set -Eeuo pipefail
# Where a command fails that nobody expects to, 1 would read as a regression.
trap 'echo "pull-request.sh: line $LINENO failed: $BASH_COMMAND" >&2; exit 2' ERR
step=${STEP:-benchmarks/train_step.py}
baseline_step=${BASELINE_STEP:-}
install=${INSTALL-'"$PYTHON" -m pip install --quiet . numpy'}
interpreter=${INTERPRETER:-python3}
dlbench=${DLBENCH:-}
row=$(basename -- "$step" .py)
report=.dlbench/report
base=
export DLBENCH_STORE=$report/store.sqlite
rm -rf "$report"
mkdir -p "$report" .dlbench/qualified

venv() {
  test -x ".dlbench/$1-venv/bin/python" || "$interpreter" -m venv ".dlbench/$1-venv"
}

if [ -z "$dlbench" ]; then
  venv dlbench
  .dlbench/dlbench-venv/bin/python -m pip install --quiet "${DLBENCH_SOURCE:-dlbench}"
  dlbench=.dlbench/dlbench-venv/bin/dlbench
fi
if [ -z "$baseline_step" ]; then
  revision=${BASE:-origin/main}
  if [[ $revision = -* ]] || ! base=$(git rev-parse --verify --quiet "$revision^{commit}"); then
    echo "pull-request.sh: this clone has no revision $revision. Fetch it, or set BASE." >&2
    exit 2
  fi
  git worktree prune
  test -e .dlbench/base || git worktree add --quiet --detach .dlbench/base "$base"
  git -C .dlbench/base checkout --quiet --detach "$base"
fi

python=$interpreter
sides=()
if [ -n "$baseline_step" ]; then
  sides=(--baseline-step "$baseline_step")
elif [ -z "$install" ]; then
  sides=(--baseline-step ".dlbench/base/$step")
  if cmp -s "$step" ".dlbench/base/$step"; then
    echo "$step is the same in ${base:0:12}: there is nothing to measure." >&2
    exit 0
  fi
else
  python=.dlbench/head-venv/bin/python
  sides=(--baseline "$row=.dlbench/base-venv/bin/python")
  venv head
  venv base
  PYTHON=$PWD/$python bash -ec "$install"
  (export PYTHON=$PWD/.dlbench/base-venv/bin/python && cd .dlbench/base && bash -ec "$install")
fi
if ! python=$(command -v -- "$python"); then # a path, as `dlbench gate` takes it
  echo "pull-request.sh: there is no interpreter $interpreter. Set INTERPRETER." >&2
  exit 2
fi

set -f # words, not patterns of files
# shellcheck disable=SC2206 # several words
options=(${OPTIONS:---threads cores})
set +f
gate=("$dlbench" gate quick --step "$step" --python "$python" --budget "${BUDGET:-30m}" "${options[@]}")
test -z "${THRESHOLD:-}" || gate+=(--threshold "$THRESHOLD")
if [ "${QUALIFY:-true}" = true ]; then
  fingerprint='import json, sys; print(json.load(sys.stdin)["machine"]["fingerprint"])'
  qualified=.dlbench/qualified/$("$dlbench" probe --json | "$interpreter" -c "$fingerprint").txt
  test -s "$qualified" || "${gate[@]}" --qualify > "$qualified" || true # the gate itself says what it cannot decide
  cp "$qualified" "$report/qualified.txt"
fi

code=0
"${gate[@]}" "${sides[@]}" --format "${FORMAT:-terminal}" --write "$report/comment.md" --write "$report/gate.json" \
  --write "$report/gate.xml" || code=$?
if [ -s "$report/comment.md" ] && [ -n "$base" ]; then
  printf '\n%s against %s\n' "$(git rev-parse HEAD)" "$base" >> "$report/comment.md"
fi
exit "$code"
