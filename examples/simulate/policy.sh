#!/bin/sh
# What would a change of policy do? The same log under today's hal.toml and under the changed one, side by side.
# Usage: examples/simulate/policy.sh [DIRECTORY]     (default: out/policy; `hal` must be on PATH)
set -eu

out=${1:-out/policy}
mkdir -p "$out"

# Today: three accounts alike.
cat > "$out/today.toml" <<'END'
[accounts.physics]
[accounts.biology]
[accounts.chemistry]

[fairshare]
half_life = "1d"
END

# The change: biology has paid for half of the machine, and nobody may hold more than three quarters of it.
cat > "$out/change.toml" <<'END'
[accounts.physics]
[accounts.biology]
weight = 2
[accounts.chemistry]

[fairshare]
half_life = "1d"

[limits.most]
account = "*"
resources = { cpu = 96 }
END

# A synthetic log at full load. Its 40 users are dealt out: half of the work is physics.
hal workload generate --jobs 1500 --cpus 128 --load 1.0 --users 40 --seed 3 -o "$out/log.swf.gz"
# 31 of its jobs are larger than 96 processors. The changed policy refuses them, so its figures are marked: look at those
# over the jobs that both started.
hal simulate "$out/log.swf.gz" --config "$out/today.toml" --config "$out/change.toml" \
    --accounts physics=2,biology=1,chemistry=1 --plot "$out/shares.svg"
hal simulate "$out/log.swf.gz" --config "$out/today.toml" --config "$out/change.toml" \
    --accounts physics=2,biology=1,chemistry=1 --json > "$out/change.json"

echo "Written to $out: shares.svg, change.json"
