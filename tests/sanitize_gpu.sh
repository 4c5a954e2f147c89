#!/usr/bin/env bash
# compute-sanitizer's four tools, side by side, over the kernels' matrix of shapes; wants a GPU.
# Prints a line a tool and fails if one found anything, or if fewer runs came through than were
# asked for. `make sanitize-gpu` calls it; named tools run alone, and KERNELS="stage6 stage7" are
# the only ones.
set -u
kernels=("stage3 --kernel tensor" "stage3 --kernel scalar" stage4 stage5 stage6 stage7)
# More tiles of queries than stage 7 has blocks, for each number of consumers.
rounds=("--head-dim 64 --heads 150 --seq 64" "--head-dim 128 --heads 150 --seq 66" "--head-dim 64 --heads 70 --seq 520"
    "--head-dim 64 --heads 150 --seq 400 --causal")
[ -z "${KERNELS:-}" ] || read -ra kernels <<<"$KERNELS"
if [ "${1:-}" = matrix ]; then
    for kernel in "${kernels[@]}"; do
        # shellcheck disable=SC2086
        run() { set -- $kernel "$@"; stage=$1; shift; ./$stage/run --device gpu "$@" --check >/dev/null && echo "ran $stage $*"; }
        for dtype in fp16 bf16; do for d in 64 128; do for n in 1 65 129 257; do for mask in "" --causal; do
            run --dtype $dtype --head-dim $d --seq $n --heads 3 $mask
        done; done; done; done
        for shape in "${rounds[@]}"; do [ "$kernel" != stage7 ] || run $shape; done
    done
    exit 0
fi
expected=$((${#kernels[@]} * 32))
for kernel in "${kernels[@]}"; do [ "$kernel" != stage7 ] || expected=$((expected + ${#rounds[@]})); done
one_tool()
{
    compute-sanitizer --tool "$1" --target-processes all --error-exitcode 9 bash "$0" matrix >build/sanitize-"$1".log 2>&1
    status=$?
    runs=$(grep -c '^ran' build/sanitize-"$1".log)
    echo "$1: $runs of $expected runs, exit $status: $(grep -o '[A-Z]* *SUMMARY.*' build/sanitize-"$1".log | sort | uniq -c | tr -s ' ' | tr '\n' ';')"
    [ "$status" = 0 ] && [ "$runs" = $expected ]
}
failed=0 jobs=()
for tool in ${*:-memcheck racecheck initcheck synccheck}; do one_tool "$tool" & jobs+=($!); done
for job in "${jobs[@]}"; do wait "$job" || failed=1; done
exit $failed
