#!/bin/sh
# Where should jobs go? The same jobs on a cluster with GPUs in racks, placed in three ways.
# Usage: examples/simulate/cluster.sh [DIRECTORY]     (default: out/cluster; `hal` must be on PATH)
set -eu

out=${1:-out/cluster}
mkdir -p "$out"

# Where the nodes are: the same file as [topology] of hal.toml names.
cat > "$out/site.toml" <<'END'
levels = ["zone", "rack"]
[nodes]
"g[01-04]" = "east/r1"
"g[05-08]" = "east/r2"
"g[09-12]" = "west/r3"
"h[1-2]" = "west/r4"
"c[1-4]" = "west/r4"
END

# What they have. Only jobs that tolerate `gpu` may use the nodes with A100s.
cat > "$out/cluster.toml" <<'END'
[topology]
file = "site.toml"

[nodes."g[01-12]"]
cpus = 64
memory = "512GiB"
gpus = "a100:8"
gpus_linked = 4
taints = ["gpu"]

[nodes."h[1-2]"]
cpus = 64
memory = "1TiB"
gpus = "h100:4"
labels = { tier = "new" }

[nodes."c[1-4]"]
cpus = 32
memory = "128GiB"
END

# 300 jobs, one a minute: training on one to four nodes, single GPUs, and work without any: elastic jobs that use up to
# three nodes more while there is room, and services of which no two are on one node.
awk 'BEGIN {
    for (i = 0; i < 300; i++) {
        time = sprintf("\"submit\": %d, \"run\": %d, \"walltime\": \"3h\"", i * 60, 600 + (i * 7919) % 7200)
        if (i % 5 == 0) print "{" time ", \"cpus\": 32, \"memory\": \"128GiB\", \"gpus\": \"a100:8\", \"nodes\": " \
            2 + i % 3 ", \"tolerate\": [\"gpu\"]}"
        else if (i % 5 == 1) print "{" time ", \"cpus\": 8, \"gpus\": \"a100:2\", \"nodes\": 2, \"within\": \"rack\", " \
            "\"tolerate\": [\"gpu\"]}"
        else if (i % 5 == 2) print "{" time ", \"cpus\": 4, \"gpus\": 1, \"constraints\": [\"tier=new\"]}"
        else if (i % 10 == 3) print "{" time ", \"cpus\": 8, \"extensions\": 3}"
        else if (i % 20 == 4) print "{" time ", \"cpus\": 1, \"labels\": {\"app\": \"web\"}, \"apart\": [\"app@node\"]}"
        else print "{" time ", \"cpus\": " 1 + i % 8 ", \"memory\": \"4GiB\"}"
    }
}' > "$out/jobs.jsonl"

hal simulate "$out/jobs.jsonl" --cluster "$out/cluster.toml" --policy easy --placement compact,first-fit,compact+auto \
    --out-jobs "$out/jobs.csv"
hal simulate "$out/jobs.jsonl" --cluster "$out/cluster.toml" --policy easy --placement compact,first-fit,compact+auto \
    --json > "$out/placements.json"

echo "Written to $out: jobs-*.csv with the nodes and GPUs of each job, placements.json"
