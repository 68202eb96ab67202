#!/usr/bin/env bash
# The job script of slurm.yaml. Submit it from the root of the repository: sbatch recipes/ranks/slurm.sh
# Arguments go to the command: sbatch recipes/ranks/slurm.sh --dry-run
#SBATCH --job-name=asterism
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@120
#SBATCH --requeue
#SBATCH --open-mode=append
# Two minutes before the limit of time the ranks are told to stop: they leave a checkpoint and end with 130.
set -euo pipefail
export OMP_NUM_THREADS="${SLURM_CPUS_PER_TASK:-1}"
# Rank, number of ranks and the place where they meet come from Slurm's own variables.
exec srun --kill-on-bad-exit=1 "${ASTERISM:-build/asterism}" train recipes/ranks/slurm.yaml "$@"
