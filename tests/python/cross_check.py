#!/usr/bin/env python3
"""What this program writes, read by Hugging Face transformers and peft: the same logits to 1e-4.

    cross_check.py [BUILD_FOLDER]

A checkpoint written by `asterism init`, and adapters written by `asterism train` on every group of targets, are
loaded by transformers and peft; the logits of a fixed row are compared with the engine's own (dump_logits). The last
case is the quickstart's model and recipe, trained for a few steps. What transformers and peft write is read back as
well, and so are checkpoints in the storage of the release, converted to both layouts. Merged checkpoints and exported
adapters give the logits of base and adapter in peft.
"""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("TQDM_DISABLE", "1")

import torch  # noqa: E402
from peft import LoraConfig, PeftModel, get_peft_model  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent.parent
TOLERANCE = 1e-4
failures = []
checks = 0


def run(*command):
    done = subprocess.run([str(c) for c in command], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        words = " ".join(map(str, command))
        raise SystemExit(f"command failed ({done.returncode}): {words}\n{done.stdout}{done.stderr}")
    return done.stdout


def tiny_config(path):
    """Every path of the architecture, weights large enough for logits of order one."""
    config = json.loads((ROOT / "tests/golden/hf/all_paths/config.json").read_text())
    config.update(initializer_range=0.3, vocab_size=211)
    path.write_text(json.dumps(config))
    return config


def row(vocab, length=45):
    generator = torch.Generator().manual_seed(5)
    return torch.randint(0, vocab, (length,), generator=generator).tolist()


def ours(build, model, adapter, ids, folder):
    (folder / "ids.json").write_text(json.dumps(ids))
    run(build / "tests/dump_logits", model, adapter or "-", folder / "ids.json", folder / "logits.safetensors")
    # A copy: the loaded tensor is a view of the file, which the next call writes over.
    return load_file(folder / "logits.safetensors")["logits"].clone()


def theirs(model, adapter, ids):
    net, info = AutoModelForCausalLM.from_pretrained(
        model, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        left = [k for k in info.get(kind, []) if not str(k).startswith("mtp.")]
        if left:
            failures.append(f"{model}: transformers reports {kind}: {left[:5]}")
    if adapter:
        net = PeftModel.from_pretrained(net, adapter)
    net.eval()
    with torch.no_grad():
        return net(input_ids=torch.tensor([ids])).logits[0].float()


def compare(name, got, want, base=None):
    global checks
    checks += 1
    gap = float((got - want).abs().max() / want.abs().max())
    verdict = "ok" if gap <= TOLERANCE else "DIFFERENT"
    # An adapter must do something, far above the rounding between the two implementations.
    if base is not None and float((got - base).abs().max()) < 20 * gap * float(want.abs().max()):
        verdict = "WITHOUT EFFECT"
    if verdict != "ok":
        failures.append(f"{name}: {verdict}, relative difference {gap:.2e}")
    print(f"{name}: relative difference {gap:.1e} {verdict}", flush=True)


def write_rows(path, vocab):
    generator = torch.Generator().manual_seed(7)
    with open(path, "w") as out:
        for _ in range(8):
            ids = torch.randint(0, vocab, (40,), generator=generator).tolist()
            out.write(json.dumps({"input_ids": ids}) + "\n")


def train(build, work, model, lora, name):
    recipe = work / f"{name}.yaml"
    recipe.write_text(
        f"name: {name}\noutput: {work}/runs\nmodel: {{path: {model}}}\n"
        f"data: {{train: {work}/rows.jsonl, sequence_length: 64}}\n"
        f"lora: {{{lora}}}\ntrain: {{steps: 4, batch: 2}}\n"
        "optimizer: {lr: 0.05}\nlog: {tensorboard: false}\n")
    run(build / "asterism", "train", recipe, "--quiet")
    return work / "runs" / name / "adapter"


def plain(model):
    return AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, attn_implementation="eager")


def check_tiny(build, work):
    vocab = tiny_config(work / "config.json")["vocab_size"]
    ids = row(vocab)
    model = work / "model"
    run(build / "asterism", "init", "--config", work / "config.json", "--out", model, "--seed", 3)
    base = ours(build, model, None, ids, work)
    compare("init, read by transformers", base, theirs(model, None, ids))

    net = plain(model)
    for original in (True, False):
        saved = work / f"saved_{original}"
        net.save_pretrained(saved, save_original_format=original)
        compare(f"save_pretrained(save_original_format={original}), read here",
                ours(build, saved, None, ids, work), base)

    write_rows(work / "rows.jsonl", vocab)
    groups = {"all": "attention, shared_experts, experts", "attention": "attention", "experts": "experts",
              "gate_up": "mlp.experts.gate_up_proj", "down": "mlp.experts.down_proj", "o_a": "self_attn.o_a_proj"}
    for name, targets in groups.items():
        adapter = train(build, work, model, f"rank: 3, alpha: 6, targets: [{targets}]", name)
        compare(f"adapter on {targets}, read by peft", ours(build, model, adapter, ids, work),
                theirs(model, adapter, ids), base)
        again = work / f"resaved_{name}"
        PeftModel.from_pretrained(plain(model), adapter).save_pretrained(again)
        compare(f"adapter on {targets}, saved by peft, read here", ours(build, model, again, ids, work),
                ours(build, model, adapter, ids, work))


def check_formats(build, work):
    """The storage of the release, converted: transformers reads every layout, safetensors every file."""
    work = work / "formats"
    work.mkdir()
    config = tiny_config(work / "config.json")
    config.update(hidden_size=64, moe_intermediate_size=64, initializer_range=0.15)
    # transformers knows no other ratio where it reads the configuration of the release; 150 tokens fill one entry.
    config["compress_rates"]["heavily_compressed_attention"] = 128
    (work / "config.json").write_text(json.dumps(config))
    ids = row(config["vocab_size"], 150)
    native = work / "native"
    run(build / "asterism", "init", "--config", work / "config.json", "--out", native, "--layout", "native",
        "--storage", "fp4")
    want = ours(build, native, None, ids, work)
    for layout in ("hf", "native"):
        plain = work / f"{layout}_bf16"
        run(build / "asterism", "convert", native, plain, "--to", layout, "--experts", "bf16", "--dense", "bf16",
            "--shard-size", "200KB", "--verify")
        compare(f"FP4 and FP8 converted to {layout} in bf16, read by transformers", want, theirs(plain, None, ids))
    run(build / "asterism", "convert", work / "hf_bf16", work / "again", "--to", "native", "--experts", "fp4",
        "--dense", "fp8")
    compare("converted back to FP4 and FP8", ours(build, work / "again", None, ids, work), want)
    for name, tensor in load_file(work / "again/model.safetensors").items():
        if tensor.dtype == torch.float8_e8m0fnu and not name.endswith(".scale"):
            failures.append(f"{name}: a scale under an unexpected name")


def check_adapter_features(build, work):
    """Patterns and saved modules, written by peft and read here, trained further here and read by peft."""
    model = work / "model"
    ids = row(json.loads((model / "config.json").read_text())["vocab_size"])
    base = ours(build, model, None, ids, work)
    wrapped = get_peft_model(plain(model), LoraConfig(
        r=4, lora_alpha=8, use_rslora=True, target_modules=["q_a_proj", "o_b_proj"],
        target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"],
        rank_pattern={"layers.1.self_attn.q_a_proj": 2, r"layers\.[23]\.mlp\.experts\.gate_up_proj": 3},
        alpha_pattern={"o_b_proj": 5, "layers.1.mlp.experts.down_proj": 3.5},
        modules_to_save=["lm_head", "mlp.gate", "q_a_norm", "layers.2.attn_hc"]))
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for name, tensor in wrapped.named_parameters():
            if tensor.requires_grad:
                tensor.add_(0.2 * tensor.abs().mean() + 0.02 * torch.randn(tensor.shape, generator=generator))
    featured = work / "featured"
    wrapped.save_pretrained(featured)
    compare("adapter with patterns and saved modules of peft, read here", ours(build, model, featured, ids, work),
            theirs(model, featured, ids), base)
    again = train(build, work, model, f"from: {featured}", "featured_again")
    compare("the same, trained further here, read by peft", ours(build, model, again, ids, work),
            theirs(model, again, ids), ours(build, model, featured, ids, work))
    saved = train(build, work, model, "rank: 2, alpha: 4, targets: [attention], modules_to_save: [lm_head, mlp.gate]",
                  "saved_modules")
    compare("adapter with saved modules, read by peft", ours(build, model, saved, ids, work),
            theirs(model, saved, ids), base)


def merged_logits_of_experts(model, adapter, ids):
    """A pair for each matrix of each expert, added to the packed weights with safetensors and torch alone."""
    net = plain(model)
    config = json.loads((adapter / "adapter_config.json").read_text())
    scale = config["lora_alpha"] / config["r"]
    stored = load_file(adapter / "adapter_model.safetensors")
    root, experts = "base_model.model.", ".mlp.experts."
    parameters = dict(net.named_parameters())
    with torch.no_grad():
        for name in [name for name in stored if name.endswith(".lora_B.weight")]:
            path = name.removeprefix(root).removesuffix(".lora_B.weight")
            b, a = stored.pop(name), stored.pop(name.replace("lora_B", "lora_A"))
            delta = scale * (b.double() @ a.double())
            if experts not in path:
                parameters[path + ".weight"].add_(delta.float())
                continue
            layer, rest = path.split(experts)
            number, leaf = rest.split(".")
            parameter = "down_proj" if leaf == "down_proj" else "gate_up_proj"
            packed = parameters[layer + experts + parameter][int(number)]
            width = packed.shape[0] // 2
            rows = {"gate_proj": slice(0, width), "up_proj": slice(width, None), "down_proj": slice(None)}[leaf]
            packed[rows].add_(delta.float())
        if stored:
            failures.append(f"{adapter}: tensors without a partner: {sorted(stored)[:5]}")
        net.eval()
        return net(input_ids=torch.tensor([ids])).logits[0].float()


def check_exports(build, work):
    """Merged checkpoints read by transformers, exported adapters by peft, single experts by hand: the same logits."""
    model, adapter = work / "model", work / "runs/all/adapter"
    ids = row(json.loads((model / "config.json").read_text())["vocab_size"])
    base, want = theirs(model, None, ids), theirs(model, adapter, ids)

    def export(source, *options):
        target = work / "_".join([source.name, *(option.strip("-") for option in options)])
        run(build / "asterism", "export", "--model", model, "--adapter", source, "--out", target, "--quiet", *options)
        return target

    compare("merged, read by transformers", theirs(export(adapter, "--to", "merged"), None, ids), want, base)
    compare("merged with module names, read by transformers",
            theirs(export(adapter, "--to", "merged", "--layout", "hf"), None, ids), want, base)
    native = export(adapter, "--to", "merged", "--layout", "native")
    compare("merged with native names, read here", ours(build, native, None, ids, work), want, base)
    compare("exported adapter, read by peft", theirs(model, export(adapter, "--to", "peft"), ids), want, base)
    single = export(adapter, "--to", "peft", "--profile", "per-expert")
    compare("adapter with a pair for each expert, added by hand", merged_logits_of_experts(model, single, ids), want,
            base)
    compare("the same, exported for peft and read by it", theirs(model, export(single, "--to", "peft"), ids), want,
            base)
    featured = work / "featured"
    want = theirs(model, featured, ids)
    compare("adapter with patterns and saved modules, merged, read by transformers",
            theirs(export(featured, "--to", "merged"), None, ids), want, base)


def check_quickstart(build, work):
    recipe = ROOT / "recipes/quickstart/recipe.yaml"
    if not (build / "tokenizer").exists():
        raise SystemExit("build/tokenizer is missing: run make setup")
    model = work / "quickstart"
    run(build / "asterism", "init", "--config", ROOT / "recipes/quickstart/config.json", "--out", model, "--seed", 0,
        "--tokenizer", build / "tokenizer")
    run(build / "asterism", "train", recipe, "--quiet", "--set", f"model.path={model}", "--set", f"output={work}/runs",
        "--set", "train.epochs=0.5", "--set", "schedule.warmup_steps=0", "--set", "eval.every=0")
    adapter = work / "runs/quickstart/adapter"
    ids = row(json.loads((model / "config.json").read_text())["vocab_size"], 30)
    losses = [json.loads(run(build / "asterism", "eval", "--model", model, *extra, "--json", "--quiet",
                             "--data", ROOT / "recipes/quickstart/held_out.jsonl"))["loss"]
              for extra in ([], ["--adapter", adapter])]
    print(f"quickstart, held-out loss: {losses[0]:.3f} before, {losses[1]:.3f} after half an epoch", flush=True)
    if losses[1] > losses[0] - 0.5:
        failures.append(f"quickstart: held-out loss {losses[0]} -> {losses[1]} did not improve")
    compare("quickstart adapter, read by peft", ours(build, model, adapter, ids, work), theirs(model, adapter, ids),
            ours(build, model, None, ids, work))


def main():
    build = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build").resolve()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        check_tiny(build, Path(folder))
        check_formats(build, Path(folder))
        check_adapter_features(build, Path(folder))
        check_exports(build, Path(folder))
        check_quickstart(build, Path(folder))
    for line in failures:
        print("FAILED", line)
    print(f"cross-check: {checks - len(failures)} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
