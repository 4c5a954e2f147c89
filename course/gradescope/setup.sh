#!/usr/bin/env bash
# Gradescope runs this once, when it builds the image: the packages that the repository names itself.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends make
make -C /autograder/source/attention setup
