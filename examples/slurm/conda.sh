#!/bin/bash
# An environment of conda.
#SBATCH --job-name=conda
#SBATCH --time=00:05:00
#SBATCH --output=conda-%j.out

set -euo pipefail
source "$CONDA_ROOT/etc/profile.d/conda.sh"
conda activate fit
fit --threads "${SLURM_CPUS_ON_NODE}"
