#!/usr/bin/env python3
"""Baseline benchmark: DeepSeek-V4 training steps with Hugging Face transformers (eager) + PEFT on the CPU.

One process measures one thing, so that the peak resident memory belongs to it alone:

    hf_baseline.py --config configs/small.json --mode full --seq 2048            a training step
    hf_baseline.py --config configs/small.json --mode lora --seq 2048            LoRA step (PEFT)
    hf_baseline.py --config configs/wide.json  --op csa --seq 2048               one part of the model
    hf_baseline.py --config configs/small.json --mode full --seq 2048 --profile 20   + top operators
    hf_baseline.py --config configs/long.json  --mode full --seq 16384 --predict     memory estimate only

The model has the architecture of the config file and random weights (HF's own initialisation; hash-router tables get
random distinct experts). A step = forward with loss on random token ids, backward, AdamW step, zero_grad. The first
`--warmup` steps are not counted. Times are medians over the counted steps. No gradient clipping, no schedule, no data
loading: only what a trainer cannot avoid.

Output: one JSON object per line on stdout (diagnostics go to stderr). Another program can be compared by printing the
same keys; keys it cannot provide are left out.

    kind              "step" or "op"
    program           "transformers", "trl", ...            config      file name without folder and suffix
    mode              "full" | "lora"                       dtype       "float32" | "bfloat16" (weights and arithmetic)
    seq, batch        tokens per row, rows per step         steps       counted steps, warmup: uncounted ones
    grad_checkpointing  recompute each decoder layer        threads     intra-op threads
    experts           HF experts implementation in use      attn        HF attention implementation
    lora_targets, lora_rank, lora_alpha                     optimizer   "adamw_fused" | "adamw"
    params_total, params_trainable                          counts of numbers, tables excluded
    tokens_per_s      batch*seq / step_s                    step_s      median of whole steps
    fwd_s, bwd_s, opt_s   medians of the three phases       step_s_all  every counted step
    loss_first, loss_last  mean next-token loss of the first and last step (warm-up included), natural log
    rss_import_mb     resident after imports                rss_model_mb  resident after building the model (+ adapters)
    peak_rss_mb       VmHWM of the process after the steps, before the matrix-multiply probe (MB = 2^20 bytes)
    predicted_peak_mb estimate made before the run          limit_gb    address-space limit (RLIMIT_AS, GiB) in force
    flops_per_token   arithmetic a perfect implementation needs (see needed_flops), causal and sparse pairs only
    mm_peak_gflops    best fp32 (or bf16) square torch.mm seen in this process, same threads
    peak_fraction     flops_per_token * tokens_per_s / mm_peak
    load_1m           1-minute load average at start        error       present when the run did not finish

Op lines have: kind, op, variant, config, seq, dtype, threads, fwd_s, fwd_bwd_s, peak_extra_mb (peak resident during
forward+backward minus resident before), flops_fwd where a needed-work count exists, note or error.
"""
import argparse
import ctypes
import gc
import json
import os
import resource
import statistics
import sys
import time
import warnings
from pathlib import Path

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

warnings.filterwarnings("ignore", category=FutureWarning)

MB = float(1 << 20)
GB = float(1 << 30)
OPS = ["swa", "csa", "hca", "moe", "mhc", "head", "rmsnorm"]


# ------------------------------------------------------------------------------------------------ process memory

def status_mb(key):
    """A line of /proc/self/status in MB, e.g. VmRSS (resident now), VmHWM (its peak)."""
    with open("/proc/self/status") as f:
        for line in f:
            if line.startswith(key + ":"):
                return int(line.split()[1]) / 1024.0
    return float("nan")


def reset_peak():
    """Give freed heap back, then restart VmHWM from the present resident size."""
    gc.collect()
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    except OSError:
        pass
    try:
        with open("/proc/self/clear_refs", "w") as f:
            f.write("5")
        return True
    except OSError:
        return False


def limit_memory(gib):
    """A failed allocation becomes a Python exception instead of a killed machine."""
    if gib > 0:
        n = int(gib * GB)
        resource.setrlimit(resource.RLIMIT_AS, (n, n))


def is_out_of_memory(e):
    return isinstance(e, MemoryError) or "can't allocate memory" in str(e) or "alloc" in str(e).lower()


# ------------------------------------------------------------------------------------------------ counts

def ratios_of(cfg):
    r = {"sliding_attention": 0}
    r.update(cfg.compress_rates)
    return [r[t] for t in cfg.layer_types]


def pairs(s, window, ratio, topk, csa):
    """(window pairs, compressed pairs read by attention, pairs scored by the indexer) of one causal sequence."""
    win = sum(min(t + 1, window) for t in range(s))
    if ratio == 0:
        return win, 0, 0
    vis = [(t + 1) // ratio for t in range(s)]
    return win, sum(min(v, topk) for v in vis) if csa else sum(vis), sum(vis) if csa else 0


def needed_flops(cfg, s, mode, lora_active=0):
    """FLOPs per token of one step, counting only work that the mathematics needs.

    Matrix products with weights: 2 per weight forward, 2 for the input gradient, 2 for the weight gradient (full
    only). Attention: 4*H*d per visible pair forward, 8*H*d backward (no recomputation). Indexer: forward only, its
    weights get no gradient from the language-model loss. Elementwise work is not counted.
    Returns (total, of which attention pairs, of which lm_head).
    """
    D, H, d, ql = cfg.hidden_size, cfg.num_attention_heads, cfg.head_dim, cfg.q_lora_rank
    og, ol, I, E, K = (cfg.o_groups, cfg.o_lora_rank, cfg.moe_intermediate_size, cfg.n_routed_experts,
                       cfg.num_experts_per_tok)
    n = cfg.hc_mult
    trained, frozen, att = 0, 0, 0.0
    for r, kind in zip(ratios_of(cfg), cfg.layer_types):
        csa = kind == "compressed_sparse_attention"
        trained += ql * D + H * d * ql + d * D + ol * H * d + D * og * ol
        trained += K * 3 * D * I + cfg.n_shared_experts * 3 * D * I + E * D + 2 * (n * (n + 2)) * n * D
        if r:
            trained += 2 * (2 if csa else 1) * d * D
        if csa:
            ih, idim = cfg.index_n_heads, cfg.index_head_dim
            frozen += ih * idim * ql + ih * D + 4 * idim * D
        w, c, ix = pairs(s, cfg.sliding_window, r, cfg.index_topk, csa)
        att += 12.0 * H * d * (w + c) / s
        att += 2.0 * cfg.index_n_heads * cfg.index_head_dim * ix / s
    head = cfg.vocab_size * D
    trained += head + n * n * D
    per = 6 if mode == "full" else 4
    total = per * trained + 2 * frozen + att + (6 * lora_active if mode == "lora" else 0)
    return total, att, per * head


def predict_peak(cfg, s, mode, dtype_bytes, ckpt, params, trainable):
    """Rough peak in bytes of HF eager, mostly [H, S, S+S/r] fp32 score tensors; within 20 % of measured runs."""
    D, H, d, K, I, V, n = (cfg.hidden_size, cfg.num_attention_heads, cfg.head_dim, cfg.num_experts_per_tok,
                           cfg.moe_intermediate_size, cfg.vocab_size, cfg.hc_mult)
    score = [H * s * (s + (s // r if r else 0) + 1) * 4.0 for r in ratios_of(cfg)]
    linear = s * 4.0 * (n * D * 6 + H * d * 6 + K * (2 * D + 5 * I) + 1500)      # other saved numbers, one layer
    layers = len(score)
    if dtype_bytes == 2:                          # the sinks are fp32, so the softmax is too; plus a bf16 copy of it
        score, linear = [1.5 * x for x in score], 0.75 * linear
    if ckpt:
        act = 3.2 * max(score) + 2.0 * linear + layers * s * n * D * dtype_bytes
    else:
        act = sum(score) + 3.0 * max(score) + layers * linear
    cube = 3.0 * s * cfg.index_n_heads * (s // 4) * 4.0
    logits = s * V * 4.0
    act = max(act, cube) + logits * (1.0 if ckpt else 2.0)
    act = max(act, 4.0 * logits)
    if mode == "lora":                            # PEFT forms W + BA of every expert and keeps it for the backward
        act += 2.0 * cfg.n_routed_experts * 3 * D * I * layers * dtype_bytes
    return 450 * MB + params * dtype_bytes + trainable * (3 * dtype_bytes) + act


def mm_peak(dtype):
    """Best GFLOP/s of a square matrix product in this process."""
    import torch
    best = 0.0
    with torch.no_grad():
        for n in (1024, 2048, 3072):
            a, b = torch.randn(n, n, dtype=dtype), torch.randn(n, n, dtype=dtype)
            torch.mm(a, b)
            for _ in range(6):
                t = time.perf_counter()
                torch.mm(a, b)
                best = max(best, 2.0 * n ** 3 / (time.perf_counter() - t))
    return best / 1e9


# ------------------------------------------------------------------------------------------------ model

def load_config(path, args):
    from transformers import DeepseekV4Config
    with open(path) as f:
        cfg = DeepseekV4Config(**json.load(f))
    cfg.use_cache = False
    cfg._attn_implementation = args.attn
    if args.experts != "default":
        cfg._experts_implementation = args.experts
    return cfg


def cast(model, dtype):
    """What from_pretrained(dtype=...) does: everything but the strict fp32 list of the model class."""
    import torch
    if dtype == torch.float32:
        return model
    keep = set(model._keep_in_fp32_modules_strict)
    for name, t in list(model.named_parameters()) + list(model.named_buffers()):
        if t.is_floating_point() and not keep.intersection(name.split(".")) and "inv_freq" not in name:
            t.data = t.data.to(dtype)
    return model


def fill_hash_tables(model, seed):
    """HF initialises tid2eid with zeros (all tokens to expert 0); use random distinct experts."""
    import torch
    g = torch.Generator().manual_seed(seed)
    for m in model.modules():
        if hasattr(m, "tid2eid"):
            v, k = m.tid2eid.shape
            m.tid2eid.copy_(torch.rand(v, m.num_experts, generator=g).topk(k, dim=-1).indices)


def build_model(cfg, dtype, seed):
    import torch
    from transformers import DeepseekV4ForCausalLM
    torch.manual_seed(seed)
    model = DeepseekV4ForCausalLM(cfg)
    fill_hash_tables(model, seed)
    return cast(model, dtype)


def lora_config(args):
    """PEFT LoRA. `attn`: the four plain projections of the main attention. `all`: + shared and routed experts.

    o_a_proj is a grouped linear that PEFT would treat as a plain one (wrong result), so it stays frozen here.
    """
    from peft import LoraConfig
    names = r"self_attn\.(q_a_proj|q_b_proj|kv_proj|o_b_proj)"
    params = None
    if args.lora_targets == "all":
        names = rf"({names}|mlp\.shared_experts\.(gate_proj|up_proj|down_proj))"
        params = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
    return LoraConfig(r=args.lora_rank, lora_alpha=args.lora_alpha, lora_dropout=0.0, bias="none",
                      target_modules=rf".*\.layers\.\d+\.{names}", target_parameters=params, task_type="CAUSAL_LM")


def add_lora(model, args):
    from peft import get_peft_model
    return get_peft_model(model, lora_config(args))


def active_lora(cfg, args):
    """Adapter numbers used per token."""
    r, D, H, d, ql = args.lora_rank, cfg.hidden_size, cfg.num_attention_heads, cfg.head_dim, cfg.q_lora_rank
    n = r * (D + ql) + r * (ql + H * d) + r * (D + d) + r * (cfg.o_groups * cfg.o_lora_rank + D)
    if args.lora_targets == "all":
        I, K = cfg.moe_intermediate_size, cfg.num_experts_per_tok
        n += 3 * r * (D + I) + K * (r * (D + 2 * I) + r * (I + D))
    return n * cfg.num_hidden_layers


# ------------------------------------------------------------------------------------------------ training step

def base_record(kind, args, dtype_name):
    import torch
    import transformers
    return {"kind": kind, "program": "transformers", "config": Path(args.config).stem, "dtype": dtype_name,
            "seq": args.seq, "batch": 1, "threads": torch.get_num_threads(), "torch": torch.__version__,
            "transformers": transformers.__version__, "load_1m": round(os.getloadavg()[0], 2)}


def run_step(args, cfg, dtype, dtype_name):
    import peft
    import torch
    rec = base_record("step", args, dtype_name)
    rec.update(mode=args.mode, steps=args.steps, warmup=args.warmup, grad_checkpointing=args.grad_checkpointing,
               attn=args.attn, optimizer=args.optimizer, peft=peft.__version__, limit_gb=args.limit_gb)
    rec["rss_import_mb"] = round(status_mb("VmRSS"), 1)
    model = build_model(cfg, dtype, args.seed)
    rec["experts"] = cfg._experts_implementation
    lora_active = 0
    if args.mode == "lora":
        model = add_lora(model, args)
        lora_active = active_lora(cfg, args)
        rec.update(lora_targets=args.lora_targets, lora_rank=args.lora_rank, lora_alpha=args.lora_alpha)
    if args.grad_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    trainable = [p for p in model.parameters() if p.requires_grad]
    rec["params_total"] = sum(p.numel() for p in model.parameters())
    rec["params_trainable"] = sum(p.numel() for p in trainable)
    opt = torch.optim.AdamW(trainable, lr=args.lr, betas=(0.9, 0.95), weight_decay=0.1,
                            fused=args.optimizer == "adamw_fused")
    rec["rss_model_mb"] = round(status_mb("VmRSS"), 1)
    need, need_att, need_head = needed_flops(cfg, args.seq, args.mode, lora_active)
    rec["flops_per_token"] = round(need)
    rec["flops_attention_share"] = round(need_att / need, 4)
    rec["flops_head_share"] = round(need_head / need, 4)
    rec["predicted_peak_mb"] = round(predict_peak(cfg, args.seq, args.mode, 4 if dtype == torch.float32 else 2,
                                                  args.grad_checkpointing, rec["params_total"],
                                                  rec["params_trainable"]) / MB)
    if args.predict:
        return rec
    if rec["predicted_peak_mb"] > args.limit_gb * 1024 and not args.force:
        rec["error"] = "not run: predicted peak is above the limit (--force runs it under the limit)"
        return rec

    gen = torch.Generator().manual_seed(args.seed + 1)
    times, losses, prof_rows = [], [], None

    def one_step():
        ids = torch.randint(0, cfg.vocab_size, (1, args.seq), generator=gen)
        t0 = time.perf_counter()
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        t1 = time.perf_counter()
        loss.backward()
        t2 = time.perf_counter()
        opt.step()
        opt.zero_grad(set_to_none=True)
        t3 = time.perf_counter()
        losses.append(loss.item())
        return t1 - t0, t2 - t1, t3 - t2

    try:
        for i in range(args.warmup + args.steps):
            t = one_step()
            print(f"step {i}: loss {losses[-1]:.4f} fwd {t[0]:.3f} bwd {t[1]:.3f} opt {t[2]:.3f} s, "
                  f"peak {status_mb('VmHWM'):.0f} MB", file=sys.stderr)
            if i >= args.warmup:
                times.append(t)
    except (RuntimeError, MemoryError) as e:
        if not is_out_of_memory(e):
            raise
        rec["error"] = "out of memory: " + str(e).strip().splitlines()[0][:200]
    rec["peak_rss_mb"] = round(status_mb("VmHWM"), 1)
    if times:
        total = [sum(t) for t in times]
        rec["step_s"] = round(statistics.median(total), 4)
        rec["tokens_per_s"] = round(args.seq / statistics.median(total), 2)
        for k, j in (("fwd_s", 0), ("bwd_s", 1), ("opt_s", 2)):
            rec[k] = round(statistics.median(t[j] for t in times), 4)
        rec["step_s_all"] = [round(x, 3) for x in total]
        rec["loss_first"], rec["loss_last"] = round(losses[0], 5), round(losses[-1], 5)
        if args.count_flops:
            from torch.utils.flop_counter import FlopCounterMode
            with FlopCounterMode(display=False) as fc:
                one_step()
            rec["flops_executed_per_token"] = round(fc.get_total_flops() / args.seq)
        if args.profile:
            from torch.profiler import ProfilerActivity, profile
            with profile(activities=[ProfilerActivity.CPU]) as p:
                one_step()
            avg = sorted(p.key_averages(), key=lambda e: -e.self_cpu_time_total)
            whole = sum(e.self_cpu_time_total for e in avg)
            prof_rows = [{"op": e.key, "self_ms": round(e.self_cpu_time_total / 1e3, 1), "calls": e.count,
                          "share": round(e.self_cpu_time_total / whole, 4)} for e in avg[:args.profile]]
            rec["profile_events"] = sum(e.count for e in avg)
        rec["mm_peak_gflops"] = round(mm_peak(dtype), 1)
        rec["peak_fraction"] = round(need * rec["tokens_per_s"] / rec["mm_peak_gflops"] / 1e9, 4)
        if prof_rows:
            rec["profile"] = prof_rows
    return rec


# ------------------------------------------------------------------------------------------------ single parts

def time_part(forward, leaves, args):
    """forward() -> tensor; medians of forward (recording for backward) and forward+backward, and the extra peak."""
    import torch
    grad = None

    def fwd():
        t = time.perf_counter()
        y = forward()
        return y, time.perf_counter() - t

    def both():
        nonlocal grad
        y, a = fwd()
        if grad is None:
            grad = torch.ones_like(y) if y.dim() == 0 else torch.randn(y.shape, dtype=y.dtype)
        t = time.perf_counter()
        y.backward(grad)
        b = time.perf_counter() - t
        for x in leaves:
            x.grad = None
        return a, b

    both()
    gc.collect()
    reset_peak()
    before = status_mb("VmRSS")
    both()
    extra = status_mb("VmHWM") - before
    f, fb = [], []
    start = time.perf_counter()
    while len(fb) < args.repeats or (time.perf_counter() - start < 0.5 and len(fb) < 200):
        a, b = both()
        f.append(a)
        fb.append(a + b)
    return {"fwd_s": round(statistics.median(f), 6), "fwd_bwd_s": round(statistics.median(fb), 6),
            "repeats": len(fb), "peak_extra_mb": round(extra, 1)}


def run_op(args, cfg, dtype, dtype_name, name):
    """Times HF's own modules on random inputs. Weights and inputs get gradients, as in full fine-tuning."""
    import torch
    from torch import nn
    from transformers.loss.loss_utils import ForCausalLMLoss
    from transformers.masking_utils import create_sliding_window_causal_mask

    S, D = args.seq, cfg.hidden_size
    torch.manual_seed(args.seed)
    out = []

    def emit(variant, result, **more):
        rec = base_record("op", args, dtype_name)
        rec.update(op=name, variant=variant, **more)
        rec.update(result)
        out.append(rec)

    if name == "head":
        lin = nn.Linear(D, args.head_vocab, bias=False)
        nn.init.normal_(lin.weight, std=cfg.initializer_range)
        lin = lin.to(dtype)
        h = torch.randn(1, S, D, dtype=dtype, requires_grad=True)
        ids = torch.randint(0, args.head_vocab, (1, S))
        need = 4.0 * S * args.head_vocab * 4 * 2
        if need > args.limit_gb * GB:
            emit("linear+cross_entropy", {"error": f"not run: predicted {need / GB:.1f} GiB"})
            return out
        emit("linear+cross_entropy", time_part(
            lambda: ForCausalLMLoss(lin(h), ids, args.head_vocab), [h, lin.weight], args),
            shape=[S, D, args.head_vocab], flops_fwd=2.0 * S * D * args.head_vocab)
        return out

    small = json.loads(json.dumps(cfg.to_dict()))
    cfg.vocab_size = 1024                                   # embedding and head are not part of these measurements
    model = build_model(cfg, dtype, args.seed)
    model.train()
    inner = model.model
    cfg.vocab_size = small["vocab_size"]
    x = torch.randn(1, S, D).to(dtype).requires_grad_(True)
    pos = torch.arange(S).unsqueeze(0)

    def layer_of(kind):
        return next((i for i, t in enumerate(cfg.layer_types) if t == kind), None)

    kinds = {"swa": "sliding_attention", "csa": "compressed_sparse_attention", "hca": "heavily_compressed_attention"}
    if name in kinds:
        i = layer_of(kinds[name])
        if i is None:
            emit("attention", {"error": "no such layer in this config"})
            return out
        att = inner.layers[i].self_attn
        emb = {k: inner.rotary_emb(x, position_ids=pos, layer_type=k) for k in ("main", "compress")}
        mask = create_sliding_window_causal_mask(config=cfg, inputs_embeds=x.detach(), attention_mask=None,
                                                 past_key_values=None, position_ids=pos)
        leaves = [x] + list(att.parameters())
        r = ratios_of(cfg)[i]
        w, c, ix = pairs(S, cfg.sliding_window, r, cfg.index_topk, name == "csa")
        lin = sum(p.numel() for n, p in att.named_parameters() if p.dim() == 2 and "position_bias" not in n)
        flops = 2.0 * S * lin + 4.0 * cfg.num_attention_heads * cfg.head_dim * (w + c)
        flops += 2.0 * cfg.index_n_heads * cfg.index_head_dim * ix
        emit("attention module", time_part(
            lambda: att(x, position_embeddings=emb, position_ids=pos, attention_mask=mask, past_key_values=None)[0],
            leaves, args), ratio=r, pairs=w + c, index_pairs=ix, flops_fwd=flops)
    elif name == "moe":
        i = next(k for k, t in enumerate(cfg.mlp_layer_types) if t == "moe")
        moe = inner.layers[i].mlp
        K, I = cfg.num_experts_per_tok, cfg.moe_intermediate_size
        flops = 2.0 * S * (K * 3 * D * I + cfg.n_shared_experts * 3 * D * I + cfg.n_routed_experts * D)
        for impl in ["eager", "grouped_mm", "batched_mm"]:
            need = S * K * 3.0 * I * D * (4 if dtype == torch.float32 else 2) * 2.5
            if impl == "batched_mm" and need > 0.5 * args.limit_gb * GB:
                emit(impl, {"error": f"not run: copies one weight matrix per token and expert, {need / GB:.1f} GiB"})
                continue
            moe.experts.config._experts_implementation = impl
            try:
                res = time_part(lambda: moe(x), [x] + list(moe.parameters()), args)
            except (RuntimeError, MemoryError) as e:
                res = {"error": str(e).strip().splitlines()[0][:200]}
            emit(impl, res, flops_fwd=flops)
    elif name == "mhc":
        layer = inner.layers[0]
        n = cfg.hc_mult
        X = torch.randn(1, S, n, D).to(dtype).requires_grad_(True)
        hc = layer.attn_hc
        flops = 2.0 * S * n * (n + 2) * n * D
        iters = hc.hc_sinkhorn_iters

        def pre():
            post, comb, y = hc(X)
            return torch.cat([post.flatten(), comb.flatten(), y.float().flatten()])

        emit("pre + sinkhorn", time_part(pre, [X] + list(hc.parameters()), args), flops_fwd=flops)
        hc.hc_sinkhorn_iters = 1
        emit("pre, 1 sinkhorn iteration", time_part(pre, [X] + list(hc.parameters()), args), flops_fwd=flops)
        hc.hc_sinkhorn_iters = iters

        class Same(nn.Module):
            """Stands in for attention (returns a pair) or experts (returns a tensor)."""

            def __init__(self, pair):
                super().__init__()
                self.pair = pair

            def forward(self, h, **_):
                return (h, None) if self.pair else h

        layer.self_attn, layer.mlp = Same(True), Same(False)
        res = time_part(lambda: layer(X), [X] + list(layer.parameters()), args)
        res["fwd_s"] = round(res["fwd_s"] / 2, 6)
        res["fwd_bwd_s"] = round(res["fwd_bwd_s"] / 2, 6)
        emit("one site: pre, sinkhorn, RMSNorm, post (half of a decoder layer with empty sublayers)", res,
             flops_fwd=flops)
    elif name == "rmsnorm":
        norm = inner.layers[0].input_layernorm
        emit("[S, hidden]", time_part(lambda: norm(x), [x] + list(norm.parameters()), args),
             bytes_min_fwd=2 * S * D * x.element_size())
        q = torch.randn(1, cfg.num_attention_heads, S, cfg.head_dim).to(dtype).requires_grad_(True)
        qn = inner.layers[0].self_attn.q_b_norm
        emit("query heads, no weight [H, S, head_dim]", time_part(lambda: qn(q), [q], args),
             bytes_min_fwd=2 * q.numel() * q.element_size())
    return out


# ------------------------------------------------------------------------------------------------ main

def main():
    ap = argparse.ArgumentParser(description="DeepSeek-V4 training step of Hugging Face transformers + PEFT on CPU",
                                 formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    ap.add_argument("--config", required=True, help="model config JSON")
    ap.add_argument("--mode", choices=["full", "lora"], default="full")
    ap.add_argument("--seq", type=int, default=2048)
    ap.add_argument("--steps", type=int, default=3, help="counted steps")
    ap.add_argument("--warmup", type=int, default=1)
    ap.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    ap.add_argument("--grad-checkpointing", action="store_true")
    ap.add_argument("--attn", default="eager", help="the model class accepts only eager")
    ap.add_argument("--experts", choices=["default", "eager", "grouped_mm", "batched_mm"], default="default",
                    help="default = what transformers picks by itself (grouped_mm)")
    ap.add_argument("--optimizer", choices=["adamw_fused", "adamw"], default="adamw_fused")
    ap.add_argument("--lr", type=float, default=1e-4)
    ap.add_argument("--lora-targets", choices=["attn", "all"], default="all")
    ap.add_argument("--lora-rank", type=int, default=16)
    ap.add_argument("--lora-alpha", type=int, default=32)
    ap.add_argument("--threads", type=int, default=0, help="0 = all cores")
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--limit-gb", type=float, default=20.0, help="address-space limit, GiB; 0 = none")
    ap.add_argument("--predict", action="store_true", help="print the memory estimate and stop")
    ap.add_argument("--force", action="store_true", help="run although the estimate is above the limit")
    ap.add_argument("--profile", type=int, default=0, metavar="N", help="one more step under the profiler, N top ops")
    ap.add_argument("--count-flops", action="store_true", help="one more step under torch's FLOP counter")
    ap.add_argument("--op", choices=OPS + ["all"], help="time a part of the model instead of a step")
    ap.add_argument("--repeats", type=int, default=5, help="op mode: timed repetitions")
    ap.add_argument("--head-vocab", type=int, default=129280, help="op head: vocabulary")
    args = ap.parse_args()

    limit_memory(args.limit_gb)
    import torch
    import transformers  # noqa: F401  (so that rss_import_mb includes it)
    torch.set_num_threads(args.threads or os.cpu_count())
    dtype = getattr(torch, args.dtype)
    if args.op:
        for name in OPS if args.op == "all" else [args.op]:
            try:
                lines = run_op(args, load_config(args.config, args), dtype, args.dtype, name)
            except (RuntimeError, MemoryError) as e:
                if not is_out_of_memory(e):
                    raise
                lines = [dict(base_record("op", args, args.dtype), op=name, error="out of memory")]
            for r in lines:
                print(json.dumps(r), flush=True)
    else:
        print(json.dumps(run_step(args, load_config(args.config, args), dtype, args.dtype)), flush=True)


if __name__ == "__main__":
    main()
