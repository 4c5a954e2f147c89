#!/usr/bin/env bash
# Runs the Criterion programs named, and closes with one line that adds up what they say.
# A program that ran no test, or whose closing line is missing, counts as a failure.
set -u
export LC_ALL=C
passed=0 failed=0
for program in "$@"; do
    echo "== $(basename "$program")"
    jobs=${JOBS:-2}
    [[ $program != *test_gpu ]] || jobs=1 # one process on the card at a time
    "$program" --jobs "$jobs" ${CRITERION_OPTIONS:-} 2>&1 | tee build/test.log
    status=${PIPESTATUS[0]}
    synthesis=$(sed 's/\x1b\[[0-9;]*m//g' build/test.log | grep -o 'Tested: [0-9]* | Passing: [0-9]*' | tail -n 1)
    tested=$(echo "$synthesis" | sed 's/Tested: \([0-9]*\).*/\1/') passing=${synthesis##* }
    if [ -z "$synthesis" ] || [ "$tested" = 0 ]; then
        echo "$program: ran no test"
        failed=$((failed + 1))
        continue
    fi
    passed=$((passed + passing))
    failed=$((failed + tested - passing))
    [ "$status" = 0 ] || [ "$tested" != "$passing" ] || failed=$((failed + 1))
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
