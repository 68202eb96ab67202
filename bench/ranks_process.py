"""What the baselines of bench/ranks that run in Python do alike: ranks, and the line that rank 0 prints."""
import os
import statistics

import torch.distributed as dist


def gather(value):
    """The value of every rank."""
    if not dist.is_initialized():
        return [value]
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def config_name(args):
    return os.path.splitext(os.path.basename(args.config))[0]


def add_results(line, args, ranks, peaks, loss_share):
    """Into `line`: times of the counted steps (a step ends with its slowest rank), losses, norm and peaks. `ranks`: the
    steps of every rank; `loss_share`: what the sum of the ranks' losses is divided by."""
    counted = range(args.warmup, args.warmup + args.steps)
    whole = [max(own[i]["whole"] for own in ranks) for i in counted]
    line["step_s"] = statistics.median(whole)
    line["tokens_per_s"] = args.seq * args.rows / line["step_s"]
    for key in ("fwd_s", "bwd_s", "opt_s"):
        if key in ranks[0][0]:
            line[key] = statistics.median(ranks[0][i][key] for i in counted)
    line["step_s_all"] = whole
    line["loss_first"] = sum(own[0]["loss"] for own in ranks) / loss_share
    line["loss_last"] = sum(own[-1]["loss"] for own in ranks) / loss_share
    line["grad_norm_last"] = ranks[0][-1]["norm"]
    line["peak_rss_mb_ranks"], line["peak_rss_mb"] = peaks, max(peaks)
