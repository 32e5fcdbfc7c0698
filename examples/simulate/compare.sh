#!/bin/sh
# Compare policies on a synthetic log: as one pool, as gangs on nodes, and at a higher load.
# Usage: examples/simulate/compare.sh [DIRECTORY]     (default: out/compare; `hal` must be on PATH)
set -eu

out=${1:-out/compare}
mkdir -p "$out"

# 600 jobs for 256 processors, 80 % offered load. The same seed gives the same log.
hal workload generate --model lublin --jobs 600 --cpus 256 --load 0.8 --seed 1 -o "$out/demo.swf.gz"

# Four policies; a picture, and a table of starts for each of them (demo-fcfs.csv, ...).
hal simulate "$out/demo.swf.gz" --policy fcfs,easy,easy-sjbf,conservative \
    --plot "$out/demo.svg" --out-jobs "$out/demo.csv"

# What would perfect run-time estimates be worth?
hal simulate "$out/demo.swf.gz" --policy easy,easy-sjbf --clairvoyant

# The same jobs as gangs on 32 nodes of 8 processors, with arrivals 10 % closer together; figures for programs.
hal simulate "$out/demo.swf.gz" --policy easy --nodes 32 --cpus-per-node 8 --scale-arrivals 0.9 --json \
    > "$out/nodes.json"

echo "Written to $out: demo.svg, demo-*.csv, nodes.json"
