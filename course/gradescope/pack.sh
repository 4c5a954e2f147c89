#!/usr/bin/env bash
# Packs the autograder that Gradescope takes: course/gradescope/pack.sh STAGES OUT.zip [SECRET]
# The last commit goes in. SECRET seeds the hidden tests; without one it is drawn here, and kept in
# the archive. `make gradescope STAGE=2 OUT=autograder.zip` calls this.
set -euo pipefail
[ $# -ge 2 ] && [ -n "$1" ] && [ -n "$2" ] || { echo "make gradescope STAGE=2 OUT=autograder.zip" >&2; exit 2; }
[[ $1 =~ ^[0-4]([ ,]+[0-4])*$ ]] || { echo "'$1': stages are 0 to 4" >&2; exit 2; }
out=$(realpath -m "$2")
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "$1" >"$work/stages"
echo "${3:-$(od -An -N16 -tx1 /dev/urandom | tr -d ' ')}" >"$work/secret"
git -C ../.. archive --format=zip -o "$work/packed" \
    --prefix= --add-file="$PWD/setup.sh" --add-file="$PWD/run_autograder" --add-file="$work/stages" \
    --add-file="$work/secret" --prefix=attention/ HEAD
mv "$work/packed" "$out"
echo "$out: upload it as the assignment's autograder"
