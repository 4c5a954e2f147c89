#!/bin/sh
# Fails if building again what was built last would do anything, or if `make help` forgets a target.
set -e
config=$(cat build/config)
unset MAKEFLAGS MAKELEVEL MFLAGS
case $config in *-sanitize) sanitize=1 ;; *) sanitize= ;; esac
compiler=${config%-sanitize}
case $compiler in *-*) exit 0 ;; esac # ARCH= or a cross compiler: not told from the name alone
again=$(make CC="$compiler" SANITIZE=$sanitize stage0 stage1 stage2 | grep -v '^make' || true)
test -z "$again" || { echo "built again: $again"; exit 1; }

help=$(make help)
for target in all help setup clean test check format tidy fuzz stageN test-N diff-N; do
    echo "$help" | grep -q "make $target " || { echo "make help lacks $target"; exit 1; }
done
