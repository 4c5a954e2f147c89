#!/usr/bin/env bash
# The bug zoo: applies each patch of tests/mutants in a copy of the tree and expects a test to fail.
#     tests/mutants.sh [NAME...]     these, or all; ALL=1 runs the whole test program in place of the
#                                    one test that the patch names
# A mutant that survives, or a patch that no longer applies, fails the run. `make mutants` calls it.
set -u
cd "$(dirname "$0")/.."
here=$PWD base=$PWD/build/mutants/base work=$PWD/build/mutants/work
rm -rf build/mutants && mkdir -p "$base"
git ls-files -z | grep -zv '^bench/results\|^docs/figures' | xargs -0 cp --parents -t "$base"
programs=$(sed -n 's/^found by: \([a-z0-9_]*\) .*/\1/p' tests/mutants/*.patch | sort -u)
make -s -C "$base" NVCC= $(printf 'build/gcc/tests/%s ' $programs) >build/mutants/log 2>&1 ||
    { tail -n 5 build/mutants/log; echo "the tree itself does not build"; exit 1; }
caught=0 wrong=0
for patch in ${*:-$(cd tests/mutants && ls -- *.patch)}; do
    name=${patch%.patch}
    read -r program test <<<"$(sed -n 's/^found by: //p' "tests/mutants/$name.patch")"
    rm -rf "$work" && cp -a "$base" "$work"
    if ! patch -s -p1 -d "$work" <"tests/mutants/$name.patch" >build/mutants/log 2>&1; then
        echo "$name: the patch does not apply"; wrong=$((wrong + 1)); continue
    fi
    if ! make -s -C "$work" NVCC= "build/gcc/tests/$program" >build/mutants/log 2>&1; then
        echo "$name: does not build"; wrong=$((wrong + 1)); continue
    fi
    filter=(); [ -n "${ALL:-}" ] || filter=(--filter "$test")
    # Without the fault the test must pass: one that always fails would catch everything.
    if ! (cd "$base" && timeout 300 "build/gcc/tests/$program" --jobs 2 "${filter[@]}") >build/mutants/log 2>&1; then
        echo "$name: $program $test fails without it"; wrong=$((wrong + 1)); continue
    fi
    (cd "$work" && timeout 300 "build/gcc/tests/$program" --jobs 2 "${filter[@]}") >build/mutants/log 2>&1
    status=$?
    if ! grep -aq 'Tested: [1-9]' build/mutants/log; then
        echo "$name: ran no test ($program $test)"; wrong=$((wrong + 1))
    elif [ $status = 0 ]; then
        echo "$name: SURVIVED $program ${filter[*]:-}"; wrong=$((wrong + 1))
    else
        echo "$name: caught by $(grep -ao '\[FAIL\] [^:]*::[^: ]*' build/mutants/log | sed 's/\[FAIL\] //' | head -n 1)"
        caught=$((caught + 1))
    fi
done
rm -rf "$work"
echo "$caught caught, $wrong not"
cd "$here" && [ "$wrong" = 0 ] && [ "$caught" -gt 0 ]
