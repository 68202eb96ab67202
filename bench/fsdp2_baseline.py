#!/usr/bin/env python3
"""Baseline of bench/ranks: Hugging Face transformers (+ PEFT) sharded by PyTorch's FSDP2 over gloo, on the CPU.

    fsdp2_baseline.py --config configs/small.json                                       one process, nothing sharded
    python -m torch.distributed.run --nproc-per-node 2 fsdp2_baseline.py --config configs/small.json

The model, its random weights and LoRA pairs are those of hf_baseline.py. Every decoder layer is a unit of
`fully_shard`, and the root with embedding and head: weights are gathered before a unit runs, forward and backward,
experts included (FSDP2 has no expert parallelism for this model). A step = `--rows` rows of random ids, dealt to the
ranks in turn, one at a time, forward with loss, backward; then clip_grad_norm_, AdamW, zero_grad.

Rank 0 prints one JSON line with the keys of bench_ranks_step. peak_rss_mb_ranks is counted from the first step on: the
whole model, which every rank builds before it is sharded, is not held against this baseline.
"""
import argparse
import json
import os
import sys
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import hf_baseline
import torch
import torch.distributed as dist
from ranks_process import add_results, config_name, gather


def shard(model):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in list(model.modules()):
        if type(module).__name__ == "DeepseekV4DecoderLayer":
            fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)


def run_step(model, optimizer, rows, total):
    """Losses are means over the row; gradients of ranks are averaged by FSDP2: rows of one length weigh the same."""
    share = dist.get_world_size() if dist.is_initialized() else 1
    start = time.perf_counter()
    losses, forward, backward = [], 0.0, 0.0
    for ids in rows:
        before = time.perf_counter()
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        middle = time.perf_counter()
        (loss * (share / total)).backward()
        forward += middle - before
        backward += time.perf_counter() - middle
        losses.append(loss.item())
    before = time.perf_counter()
    norm = torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], 1.0)
    norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    end = time.perf_counter()
    return {"whole": end - start, "fwd_s": forward, "bwd_s": backward, "opt_s": end - before,
            "loss": sum(losses), "norm": norm.item()}


def prepare(args):
    args.attn, args.experts = "eager", "default"
    cfg = hf_baseline.load_config(args.config, args)
    model = hf_baseline.build_model(cfg, getattr(torch, args.dtype), args.seed)
    if args.mode == "lora":
        model = hf_baseline.add_lora(model, args)
    if args.grad_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    if dist.is_initialized():
        shard(model)
    return model, cfg, trained


def measure(args):
    rank = dist.get_rank() if dist.is_initialized() else 0
    world = dist.get_world_size() if dist.is_initialized() else 1
    model, cfg, trained = prepare(args)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, betas=(0.9, 0.95),
                                  weight_decay=0.1, fused=args.optimizer == "adamw_fused")
    hf_baseline.reset_peak()
    generator = torch.Generator().manual_seed(args.seed + 1)
    steps = []
    for _ in range(args.warmup + args.steps):
        rows = [torch.randint(0, cfg.vocab_size, (1, args.seq), generator=generator) for _ in range(args.rows)]
        if dist.is_initialized():
            dist.barrier()
        steps.append(run_step(model, optimizer, rows[rank::world], args.rows))
        if rank == 0:
            print("step " + " ".join(f"{key} {value:.4f}" for key, value in steps[-1].items()), file=sys.stderr)
    peaks = gather(hf_baseline.status_mb("VmHWM"))
    ranks = gather(steps)
    line = {"kind": "ranks_step", "program": "fsdp2" if world > 1 else "transformers",
            "config": config_name(args), "mode": args.mode, "dtype": args.dtype,
            "seq": args.seq, "batch": args.rows, "steps": args.steps, "warmup": args.warmup, "world": world,
            "threads": torch.get_num_threads(), "expert": 1, "shard": world,
            "strategy": "gather experts" if world > 1 else "one rank",
            "grad_checkpointing": args.grad_checkpointing, "torch": torch.__version__, "optimizer": args.optimizer,
            "params_trainable": trained}
    add_results(line, args, ranks, peaks, args.rows)
    if rank == 0:
        print(json.dumps(line), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True)
    parser.add_argument("--mode", choices=["full", "lora"], default="full")
    parser.add_argument("--seq", type=int, default=512)
    parser.add_argument("--rows", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--warmup", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="of each rank")
    parser.add_argument("--dtype", choices=["float32"], default="float32")
    parser.add_argument("--grad-checkpointing", action="store_true")
    parser.add_argument("--optimizer", choices=["adamw_fused", "adamw"], default="adamw_fused")
    parser.add_argument("--lora-targets", choices=["attn", "all"], default="all")
    parser.add_argument("--lora-rank", type=int, default=16)
    parser.add_argument("--lora-alpha", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group("gloo")
    measure(args)
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
