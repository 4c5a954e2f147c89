#!/usr/bin/env bash
# compute-sanitizer's four tools over the kernels' matrix of shapes; wants a GPU. Prints a line a
# tool and fails if one found anything, or if fewer runs came through than were asked for.
# `make sanitize-gpu` calls it; named tools run alone.
set -u
kernels=("stage3 --kernel tensor" "stage3 --kernel scalar" stage4 stage5 stage6 stage7)
expected=$((${#kernels[@]} * 32))
if [ "${1:-}" = matrix ]; then
    for kernel in "${kernels[@]}"; do
        for dtype in fp16 bf16; do for d in 64 128; do for n in 1 65 129 257; do for mask in "" --causal; do
            # shellcheck disable=SC2086
            set -- $kernel
            stage=$1; shift
            ./$stage/run "$@" --device gpu --dtype $dtype --head-dim $d --seq $n --heads 3 $mask --check >/dev/null &&
                echo "ran $kernel $dtype D=$d N=$n $mask"
        done; done; done; done
    done
    exit 0
fi
failed=0
for tool in ${*:-memcheck racecheck initcheck synccheck}; do
    compute-sanitizer --tool $tool --target-processes all --error-exitcode 9 bash "$0" matrix >build/sanitize.log 2>&1
    status=$?
    runs=$(grep -c '^ran' build/sanitize.log)
    echo "$tool: $runs of $expected runs, exit $status: $(grep -o '[A-Z]* *SUMMARY.*' build/sanitize.log)"
    [ "$status" = 0 ] && [ "$runs" = $expected ] || failed=1
done
exit $failed
