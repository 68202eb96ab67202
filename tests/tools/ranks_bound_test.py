import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import ranks_bound  # noqa: E402

PROGRAM = ROOT / "build/bench/bench_ranks_step"

UNITS = {"embedding": {"trained": 100, "frozen": 0}, "halves": {"trained": 80, "frozen": 20},
         "experts": {"trained": 400, "frozen": 0}, "head": {"trained": 60, "frozen": 0}}


def bound(expert, shard, replicate, recompute=True, rounds=1, row_bytes=0, units=UNITS):
    return ranks_bound.lower_bound(units, row_bytes, expert, shard, replicate, recompute, rounds)


class LowerBound(unittest.TestCase):
    def test_one_rank_sends_nothing(self):
        self.assertEqual(bound(1, 1, 1)["total"], 0)

    def test_experts_that_are_gathered(self):
        # Half of everything, halves and experts twice; half of all gradients.
        self.assertEqual(bound(1, 2, 1), {"gather": 50 + 100 + 400 + 30, "reduce": 50 + 40 + 200 + 30,
                                          "replicas": 0, "rows": 0, "total": 900})

    def test_experts_that_stay(self):
        self.assertEqual(bound(2, 2, 1, row_bytes=30), {"gather": 50 + 100 + 30, "reduce": 50 + 40 + 30,
                                                        "replicas": 0, "rows": 60, "total": 360})

    def test_weights_that_are_kept_are_gathered_once(self):
        self.assertEqual(bound(2, 2, 1, recompute=False)["gather"], 50 + 50 + 30)

    def test_copies_add_up_once_a_step_whatever_the_rounds(self):
        # Four ranks, two copies; each expert on two ranks.
        sums = bound(2, 2, 2, rounds=2, row_bytes=30)
        self.assertEqual(sums["gather"], 2 * (50 + 100 + 200 + 30))
        self.assertEqual(sums["reduce"], 2 * (50 + 40 + 100 + 30))
        self.assertEqual(sums["replicas"], 2 * (240 / 2) / 2)
        self.assertEqual(sums["rows"], 60)

    def test_frozen_weights_have_no_gradients(self):
        frozen = {kind: {"trained": 0, "frozen": 100} for kind in UNITS}
        self.assertEqual(bound(1, 2, 1, units=frozen)["reduce"], 0)
        self.assertEqual(bound(1, 2, 1, units=frozen)["gather"], 50 + 100 + 100 + 50)


@unittest.skipUnless(PROGRAM.exists(), "the benchmarks are not built")
class SentBytes(unittest.TestCase):
    """The engine sends what the formula says, and little else: padding of shards, counts, losses."""

    @classmethod
    def setUpClass(cls):
        # Small weights and many tokens: every term of the formula is a good part of the sum.
        config = json.loads((ROOT / "bench/configs/small.json").read_text())
        config.update(vocab_size=256, hidden_size=128, q_lora_rank=32, o_lora_rank=32, head_dim=64,
                      moe_intermediate_size=64)
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.config = Path(cls.folder.name) / "config.json"
        cls.config.write_text(json.dumps(config))

    def run_ranks(self, *options):
        done = subprocess.run([str(PROGRAM), "--config", str(self.config), "--ranks", "2", "--seq", "256",
                               "--steps", "1", "--warmup", "0", *options], capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        line = json.loads(done.stdout.splitlines()[-1])
        sent = sum(line["bytes_sent"]) / 2
        return sent, ranks_bound.bound_of(line)

    def test_layouts_that_send_no_more_than_needed(self):
        for options in (["--expert", "1"], ["--expert", "1", "--mode", "lora"],
                        ["--expert", "2", "--recompute", "none"]):
            sent, least = self.run_ranks(*options)
            self.assertGreaterEqual(sent, least["total"], options)
            self.assertLess(sent, 1.005 * least["total"], options)

    def test_recomputed_experts_send_their_tokens_and_results_again(self):
        sent, least = self.run_ranks("--expert", "2")
        self.assertGreaterEqual(sent, least["total"] + least["rows"] / 2)
        self.assertLess(sent, 1.005 * (least["total"] + least["rows"] / 2))


if __name__ == "__main__":
    unittest.main()
