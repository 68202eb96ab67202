#!/usr/bin/env python3
"""Baseline of bench/ranks: ModelScope Twinkle 0.5.1 on the CPU, through its public interface.

It runs in the virtual environment that bench/setup-twinkle makes:

    twinkle_baseline.py --config configs/small.json                                       one process
    python -m torch.distributed.run --nproc-per-node 2 twinkle_baseline.py --config configs/small.json --expert 2

Two ranks shard with FSDP2, with --expert 2 on top of Twinkle's expert parallelism. Gradient checkpointing is on, as
Twinkle sets it; --no-checkpointing switches it off on the model inside. A step = forward_backward, clip_grad_norm,
step, zero_grad, lr_step on `--rows` rows of random ids, which the ranks share.

Twinkle knows GPUs, NPUs and Apple's. `run_on_cpu` replaces what stands in the way from outside; the package stays as
it is:
  * its choice of a platform, which takes a machine without an accelerator for one with CUDA and NCCL;
  * the shape of one all_gather in its expert parallelism, which NCCL takes and gloo refuses. The numbers are the same.

Rank 0 prints one JSON line with the keys of bench_ranks_step. peak_rss_mb_ranks is counted from the first step on:
loading is not held against this baseline. With --expert equal to the number of ranks, release 0.5.1 multiplies the
experts' gradients by that number, so its gradient norm is not the others'; the work is the same.
"""
import argparse
import json
import os
import shutil
import sys
import time
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import hf_baseline
import torch
import torch.distributed as dist
from ranks_process import add_results, config_name, gather

ROOT = Path(__file__).resolve().parent.parent
RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def run_on_cpu():
    from twinkle.utils.platforms.base import Platform

    class OnCPU(Platform):
        @staticmethod
        def visible_device_env(platform=None):
            return "CUDA_VISIBLE_DEVICES"

        @staticmethod
        def device_prefix(platform=None):
            return "cpu"

        @staticmethod
        def device_backend(platform=None):
            return "gloo"

        @staticmethod
        def get_local_device(index=None, **_):
            return "cpu"

    Platform.get_platform = staticmethod(lambda platform=None: OnCPU)
    all_gather = dist.all_gather_into_tensor

    def flat_all_gather(output, part, *rest, **named):
        return all_gather(output.flatten() if output.dim() > part.dim() else output, part, *rest, **named)

    dist.all_gather_into_tensor = flat_all_gather


def model_folder(args):
    """An HF folder with the random weights of the other baselines: Twinkle reads one. Written once, by rank 0."""
    name = config_name(args)
    folder = ROOT / f"build/twinkle-models/{name}-{args.seed}"
    stamp, config = folder / "made-from.json", Path(args.config).read_text()
    if RANK == 0 and not (stamp.exists() and stamp.read_text() == config):
        args.attn, args.experts = "eager", "default"
        cfg = hf_baseline.load_config(args.config, args)
        hf_baseline.build_model(cfg, torch.float32, args.seed).save_pretrained(folder)
        for file in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(ROOT / "build/tokenizer" / file, folder)
        stamp.write_text(config)
    if WORLD > 1:
        dist.barrier()
    return str(folder)


def build(args):
    import twinkle
    from twinkle.model import TransformersModel
    folder = model_folder(args)
    mesh = twinkle.DeviceMesh.from_sizes(fsdp_size=WORLD, dp_size=1, ep_size=args.expert, device_type="cpu")
    twinkle.initialize(mode="local", nproc_per_node=WORLD, seed=args.seed, global_device_mesh=mesh)
    sharding = {"fsdp_config": {"expert_parallel": {"enabled": True, "keep_router_logits": False}}} \
        if args.expert > 1 else {}
    model = TransformersModel(model_id=folder, device_mesh=mesh, mixed_precision="no", dtype=torch.float32,
                              strategy="native_fsdp" if WORLD > 1 else "accelerate", **sharding)
    adapter = "default" if args.mode == "lora" else ""
    if adapter:
        torch.manual_seed(args.seed)
        model.add_adapter_to_model(adapter, hf_baseline.lora_config(args), gradient_accumulation_steps=1)
    if args.no_checkpointing:
        model.model.gradient_checkpointing_disable()
    model.set_template("DeepseekV4Template", model_id=folder, adapter_name=adapter)
    model.set_optimizer("AdamW", lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, adapter_name=adapter)
    return model, mesh, adapter


def random_rows(args, vocabulary, generator):
    rows = []
    for _ in range(args.rows):
        ids = torch.randint(0, vocabulary, (args.seq,), generator=generator)
        labels = torch.cat([ids[1:], torch.tensor([-100])])
        rows.append({"input_ids": ids, "labels": labels, "attention_mask": torch.ones_like(ids),
                     "position_ids": torch.arange(args.seq), "length": args.seq})
    return rows


def run_step(model, adapter, rows):
    start = time.perf_counter()
    loss = float(model.forward_backward(inputs=rows, adapter_name=adapter)["loss"])
    middle = time.perf_counter()
    norm = model.clip_grad_norm(max_grad_norm=1.0, adapter_name=adapter)
    model.step(adapter_name=adapter)
    model.zero_grad(adapter_name=adapter)
    model.lr_step(adapter_name=adapter)
    end = time.perf_counter()
    return {"whole": end - start, "opt_s": end - middle, "loss": loss, "norm": float(norm)}


def measure(args):
    model, mesh, adapter = build(args)
    trained, _ = model._get_nb_trainable_parameters(adapter, model.model)
    generator = torch.Generator().manual_seed(args.seed + 1)
    hf_baseline.reset_peak()
    steps = []
    for _ in range(args.warmup + args.steps):
        rows = random_rows(args, model.hf_config.vocab_size, generator)
        rows = rows[mesh.get_slice(len(rows))]
        if WORLD > 1:
            dist.barrier()
        steps.append(run_step(model, adapter, rows))
        if RANK == 0:
            print("step " + " ".join(f"{key} {value:.4f}" for key, value in steps[-1].items()), file=sys.stderr)
    peaks = gather(hf_baseline.status_mb("VmHWM"))
    ranks = gather(steps)
    targets = args.rows * (args.seq - 1)  # the reported losses are sums over them
    line = {"kind": "ranks_step", "program": "twinkle", "config": config_name(args),
            "mode": args.mode, "dtype": "float32", "seq": args.seq, "batch": args.rows, "steps": args.steps,
            "warmup": args.warmup, "world": WORLD, "threads": torch.get_num_threads(), "expert": args.expert,
            "shard": WORLD,
            "strategy": "one rank" if WORLD == 1 else "expert parallel" if args.expert > 1 else "gather experts",
            "grad_checkpointing": not args.no_checkpointing, "torch": torch.__version__, "optimizer": "adamw",
            "params_trainable": trained}
    add_results(line, args, ranks, peaks, targets)
    if RANK == 0:
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
    parser.add_argument("--expert", type=int, default=1, help="ranks that split the experts")
    parser.add_argument("--no-checkpointing", action="store_true")
    parser.add_argument("--lora-targets", choices=["attn", "all"], default="all")
    parser.add_argument("--lora-rank", type=int, default=16)
    parser.add_argument("--lora-alpha", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    args.config = str(Path(args.config).resolve())
    os.chdir(ROOT / "build")  # Twinkle leaves a folder of locks where it runs
    run_on_cpu()
    if WORLD > 1:
        dist.init_process_group("gloo")
    measure(args)
    if WORLD > 1:
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
