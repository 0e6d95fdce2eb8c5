#!/usr/bin/env bash
# A gate for a pull request: installs your package at its base and as checked out, each in its own virtual environment,
# and measures your training step in both, in pairs of launches. github-gate.yml and gitlab-gate.yml run it; so can any
# other CI, or you in a clone. Settings come from the environment:
#
#   BASE             the revision to compare with                          (origin/main)
#   STEP             your training step (`dlbench new step FILE`), in a folder without the package: modules beside it are
#                    imported before installed ones                        (benchmarks/train_step.py)
#   INSTALL          installs the package that is in the current folder    ("$PYTHON" -m pip install --quiet . numpy)
#   OPTIONS          axes and budget, as for `dlbench gate`                (--threads cores --budget 30m)
#   DLBENCH_SOURCE   where dlbench comes from: a release, URL or folder    (dlbench)
#
# .dlbench/report has the comment, the report as JSON and JUnit XML, the store, and the slowdowns that a gate finds on
# this machine. These are measured at a machine's first gate: keep .dlbench/qualified. Exits as `dlbench gate` does: 0
# passed, 1 a regression, 5 no number where the base has one, 6 undecided; anything else is a failure of the job itself.
set -euo pipefail
step=${STEP:-benchmarks/train_step.py}
install=${INSTALL:-'"$PYTHON" -m pip install --quiet . numpy'}
row=$(basename "$step" .py)
report=.dlbench/report
export DLBENCH_STORE=$report/store.sqlite
rm -rf "$report"
mkdir -p "$report" .dlbench/qualified

base=$(git rev-parse --verify "${BASE:-origin/main}^{commit}")
git worktree prune
test -e .dlbench/base || git worktree add --quiet --detach .dlbench/base "$base"
git -C .dlbench/base checkout --quiet --detach "$base"
for side in dlbench base head; do
  test -x .dlbench/$side-venv/bin/python || python3 -m venv .dlbench/$side-venv
done
.dlbench/dlbench-venv/bin/python -m pip install --quiet "${DLBENCH_SOURCE:-dlbench}"
PYTHON=$PWD/.dlbench/head-venv/bin/python bash -ec "$install"
(export PYTHON=$PWD/.dlbench/base-venv/bin/python && cd .dlbench/base && bash -ec "$install")

dlbench=.dlbench/dlbench-venv/bin/dlbench
# shellcheck disable=SC2206 # several words
gate=("$dlbench" gate quick --step "$step" --python .dlbench/head-venv/bin/python ${OPTIONS:---threads cores --budget 30m})
fingerprint='import json, sys; print(json.load(sys.stdin)["machine"]["fingerprint"])'
qualified=.dlbench/qualified/$("$dlbench" probe --json | .dlbench/dlbench-venv/bin/python -c "$fingerprint").txt
test -s "$qualified" || "${gate[@]}" --qualify > "$qualified" || true # the gate itself says what it cannot decide
cp "$qualified" "$report/qualified.txt"

code=0
"${gate[@]}" --baseline "$row=.dlbench/base-venv/bin/python" --write "$report/comment.md" --write "$report/gate.json" \
  --write "$report/gate.xml" || code=$?
test ! -s "$report/comment.md" || printf '\n%s against %s\n' "$(git rev-parse HEAD)" "$base" >> "$report/comment.md"
exit "$code"
