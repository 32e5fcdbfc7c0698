#!/bin/bash
#SBATCH --job-name=mail
#SBATCH --mail-type=BEGIN,END,FAIL
#SBATCH --mail-user=ann@example.org
#SBATCH --time=5
#SBATCH --output=mail-%j.out

echo "done"
