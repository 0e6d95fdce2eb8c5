#!/usr/bin/env bash
# Runs everything that dlbench does with GPUs once on this machine, into one folder. Settings come from the environment:
#
#   DLBENCH    the command                                        (dlbench)
#   BUILDS     builds that drive the GPU, as for --python,        (none: dlbench's own environments)
#              separated by blanks: "torch=/usr/bin/python3 jax=/usr/bin/python3"
#   ROWS       rows to measure                                    (torch:eager,torch:graph,torch:compile,jax)
#   DEVICES    as for --devices                                   (gpus)
#   FOLDER     output folder                                      (gpu-proof)
#   BUDGET     time for each sweep                                (8m)
#   PYTHON     one with tests/requirements.lock, for the parts conformance and plain, which need a clone  (python3)
#
#   gpu-proof.sh            every part in turn
#   gpu-proof.sh figure1    one part, or several, of: machine conformance table4 turns precisions placements
#                           workers best figure1 explain plain reports
#
# dlbench itself needs the packages of suites/requirements.lock. For a machine without network access, download them
# elsewhere (`pip download -r suites/requirements.lock -d wheels`), then set PIP_NO_INDEX=1 PIP_FIND_LINKS=wheels here.
#
# Each part stores its results in FOLDER/results.sqlite as it runs, and may be repeated. Exits with 1 if a part failed.
set -uo pipefail
dlbench=${DLBENCH:-dlbench}
rows=${ROWS:-torch:eager,torch:graph,torch:compile,jax}
devices=${DEVICES:-gpus}
folder=${FOLDER:-gpu-proof}
budget=${BUDGET:-8m}
tests=$(cd "$(dirname "$0")/../.." && pwd)/tests # of a clone
builds=()
for build in ${BUILDS:-}; do builds+=(--python "$build"); done
mkdir -p "$folder" || exit 2
export DLBENCH_STORE=$folder/results.sqlite
failed=0

measure() { # name, then the words of `dlbench run`
  local name=$1
  shift
  "$dlbench" run "$@" --frameworks "$rows" "${builds[@]}" --devices "$devices" --budget "$budget" --no-build \
    >"$folder/$name.txt" 2>"$folder/$name.log" || { echo "gpu-proof: $name failed, see $folder/$name.log" >&2; failed=1; }
}

show() { # file, then the words of a command that prints it
  local file=$1
  shift
  "$dlbench" "$@" >"$folder/$file" 2>"$folder/$file.log" || { echo "gpu-proof: $file failed, see $folder/$file.log" >&2; failed=1; }
}

part() {
  case $1 in
    machine) show machine.txt probe ;;
    conformance)
      [ -d "$tests" ] || { echo "gpu-proof: $1 needs a clone, it is left out" >&2; return; }
      local given=()
      for build in ${BUILDS:-}; do given+=("DLBENCH_PYTHON_$(tr 'a-z-' 'A-Z_' <<<"${build%%=*}")=${build#*=}"); done
      env "${given[@]}" DLBENCH_TEST_DEVICE=cuda:0 "${PYTHON:-python3}" -m pytest "$tests/adapters/test_conformance.py" \
        -m "not slow" >"$folder/conformance.txt" 2>&1 || { echo "gpu-proof: conformance failed, see $folder/conformance.txt" >&2; failed=1; }
      ;;
    table4) measure table4 table4 ;;
    turns) # launches of a GPU that alternate, and pairs of identical code in both orders
      measure turns table4 --networks fcn5,resnet50,lstm32 --order turns --launches 3
      local order code
      for order in turns sequential; do
        code=0
        "$dlbench" compare --now --suite table4 --networks fcn5 --same --pairs 7 --order "$order" --frameworks "${rows%%,*}" \
          "${builds[@]}" --devices cuda:0 --no-build >"$folder/pairs-$order.txt" 2>"$folder/pairs-$order.log" || code=$?
        # 6: so few pairs decided nothing.
        [ "$code" = 0 ] || [ "$code" = 6 ] || { echo "gpu-proof: pairs-$order failed, see $folder/pairs-$order.log" >&2; failed=1; }
      done
      ;;
    precisions) measure precisions table4 --networks fcn8,alexnet,resnet50,lstm32 --precisions float32,tf32,bfloat16,float16 ;;
    placements) measure placements table4 --networks fcn5,resnet50 --placements resident,pinned,pageable ;;
    workers) measure workers scaling ;; # on a machine with one GPU two workers are holes with that reason
    best) # where a GPU should come closest to its ceilings
      measure best-resnet50 table4 --networks resnet50 --batch-sizes 64,256 --precisions bfloat16,tf32
      measure best-fcn8 table4 --networks fcn8 --batch-sizes 4096 --precisions float32,tf32,bfloat16
      ;;
    figure1) measure figure1 figure1 ;;
    explain)
      for network in resnet50 fcn8 lstm32; do
        show "explain-$network.txt" explain "${rows%%,*}/$network" --device cuda:0 "${builds[@]}" --no-build
      done
      ;;
    plain) # an adapter's step against a plain script's, pair by pair; PyTorch's in float32
      [ -d "$tests" ] || { echo "gpu-proof: $1 needs a clone, it is left out" >&2; return; }
      for build in ${BUILDS:-}; do [ "${build%%=*}" = torch ] && export DLBENCH_PYTHON_TORCH=${build#*=}; done
      "${PYTHON:-python3}" "$tests/benchmarks/plain_ratio.py" --frameworks torch:eager --device cuda:0 --networks \
        fcn5,resnet50,lstm32 --rounds 5 --steps 50 >"$folder/plain.txt" 2>&1 || { echo "gpu-proof: plain failed, see $folder/plain.txt" >&2; failed=1; }
      ;;
    reports)
      show matrix.txt report matrix
      show matrix.json report matrix --json
      show ceiling.txt report matrix --quantity ceiling
      show joules.txt report matrix --quantity joules
      show busy.txt report matrix --quantity busy
      show ceilings.txt report ceilings
      show scaling.txt report scaling
      show figure1-report.txt report figure1 --suite figure1 --plot "$folder/figure1.png"
      show tables.txt report tables
      ;;
    *)
      echo "gpu-proof: there is no part $1. There are: machine conformance table4 turns precisions placements workers best figure1 explain plain reports" >&2
      exit 2
      ;;
  esac
}

for name in "${@:-machine conformance table4 turns precisions placements workers best figure1 explain plain reports}"; do
  for each in $name; do
    echo "gpu-proof: $each" >&2
    part "$each"
  done
done
exit "$failed"
