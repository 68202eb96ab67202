#!/usr/bin/env bash
# Starts the ranks of torchrun.yaml on this machine; run it on each, from the root of the repository.
#   NODES=2 MASTER=node1 recipes/ranks/torchrun.sh [ARGUMENTS OF train]      --dry-run checks everything
set -euo pipefail
exec "${TORCHRUN:-torchrun}" --no-python --nnodes "${NODES:-1}" --nproc-per-node "${RANKS_PER_NODE:-8}" \
  --rdzv-backend c10d --rdzv-endpoint "${MASTER:-localhost}:${PORT:-29400}" --rdzv-id "${RUN:-asterism}" \
  "${ASTERISM:-build/asterism}" train recipes/ranks/torchrun.yaml "$@"
