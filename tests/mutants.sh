#!/usr/bin/env bash
# The bug zoo: applies each patch of tests/mutants in a copy of the tree and expects a test to fail.
#     tests/mutants.sh [NAME...]     these, or all; ALL=1 runs the whole test program in place of the
#                                    one test that the patch names
# A mutant that survives, or a patch that no longer applies, fails the run. `make mutants` calls it.
set -u
cd "$(dirname "$0")/.."
zoo=$PWD/tests/mutants base=$PWD/build/mutants/base

# One patch: prints "NAME: caught by TEST", or what went wrong.
try() {
    local name=${1%.patch} work=$PWD/build/mutants/$$ log=$PWD/build/mutants/$$.log program test status
    local filter=()
    read -r program test <<<"$(sed -n 's/^found by: //p' "$zoo/$name.patch")"
    [ -n "${ALL:-}" ] || filter=(--filter "$test")
    rm -rf "$work" && cp -a "$base" "$work"
    patch -s -p1 -d "$work" <"$zoo/$name.patch" >"$log" 2>&1 || { echo "$name: the patch does not apply"; return; }
    make -s -C "$work" NVCC= "build/gcc/tests/$program" >"$log" 2>&1 || { echo "$name: does not build"; return; }
    # Without the fault the test must pass: one that always fails would catch everything.
    (cd "$base" && timeout 300 "build/gcc/tests/$program" --jobs 1 "${filter[@]}") >"$log" 2>&1 ||
        { echo "$name: $program $test fails without it"; return; }
    (cd "$work" && timeout 300 "build/gcc/tests/$program" --jobs 1 "${filter[@]}") >"$log" 2>&1
    status=$?
    if ! grep -aq 'Tested: [1-9]' "$log"; then
        echo "$name: ran no test ($program $test)"
    elif [ $status = 0 ]; then
        echo "$name: SURVIVED $program ${filter[*]:-}"
    else
        echo "$name: caught by $(grep -ao '\[FAIL\] [^:]*::[^: ]*' "$log" | sed 's/\[FAIL\] //' | head -n 1)"
    fi
    rm -rf "$work" "$log"
}
[ "${1:-}" != --one ] || { try "$2"; exit; }

rm -rf build/mutants && mkdir -p "$base"
git ls-files -z | grep -zv '^bench/results\|^docs/figures' | xargs -0 cp --parents -t "$base"
programs=$(sed -n 's/^found by: \([a-z0-9_]*\) .*/\1/p' "$zoo"/*.patch | sort -u)
make -s -j2 -C "$base" NVCC= $(printf 'build/gcc/tests/%s ' $programs) >build/mutants/log 2>&1 ||
    { tail -n 5 build/mutants/log; echo "the tree itself does not build"; exit 1; }
patches=${*:-$(cd "$zoo" && ls -- *.patch)}
printf '%s\n' $patches | xargs -P 2 -n 1 tests/mutants.sh --one | tee build/mutants/results
caught=$(grep -c ': caught by ' build/mutants/results) all=$(wc -w <<<"$patches")
echo "$caught caught, $((all - caught)) not"
[ "$caught" = "$all" ] && [ "$caught" -gt 0 ]
