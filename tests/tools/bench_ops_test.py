"""Tests of bench/ops: how its lines and those of the baseline become one table."""
import importlib.machinery
import importlib.util
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "bench/ops"


def load_bench_ops():
    loader = importlib.machinery.SourceFileLoader("bench_ops", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("bench_ops", loader))
    loader.exec_module(module)
    return module


bench_ops = load_bench_ops()


def case(name, ms, label, share=0.5):
    return {"name": name + "/real_time", "real_time": ms, "label": label, "gflops": 100.0, "gbytes": 7.0,
            "share": share}


def line(op, variant, forward, step, config="small", dtype="float32"):
    return {"op": op, "variant": variant, "config": config, "dtype": dtype, "fwd_s": forward, "fwd_bwd_s": step}


ENGINE = {
    "context": {"threads": "2", "peak_fp32_gflops": "200.4", "peak_bf16_gflops": "400.0", "peak_gbytes": "30.0"},
    "benchmarks": [case("swiglu_step/2048", 2.0, "small, step: 7 GB/s = 50 % of the triad"),
                   case("csa/small/fp32/forward", 40.0, "100 GFLOP/s"),
                   case("csa/small/fp32/step", 100.0, "100 GFLOP/s"),
                   case("head/small/fp32/step", 50.0, "100 GFLOP/s")],
}
BASELINE = [line("csa", "attention module", 0.3, 0.9), line("mhc", "pre + sinkhorn", 5.0, 5.0),
            line("mhc", "one site: pre, post", 0.05, 0.1)]


class BenchOpsTest(unittest.TestCase):
    def rows(self, baseline):
        return {row.part: row for row in bench_ops.join(ENGINE, baseline)}

    def test_a_half_is_compared_with_the_sublayer_and_one_site(self):
        row = self.rows(BASELINE)["csa"]
        self.assertAlmostEqual(row.hf_forward_ms, 350.0)
        self.assertAlmostEqual(row.hf_step_ms, 1000.0)
        self.assertAlmostEqual(row.ratio, 10.0)
        self.assertEqual(row.forward.ms, 40.0)

    def test_a_sum_with_a_missing_or_failed_line_is_left_out(self):
        self.assertIsNone(self.rows(BASELINE[:2])["csa"].ratio)
        failed = {key: value for key, value in BASELINE[2].items() if not key.startswith("fwd")} | {"error": "memory"}
        self.assertIsNone(self.rows(BASELINE[:2] + [failed])["csa"].ratio)

    def test_lines_of_another_width_or_type_do_not_count(self):
        for other in ({"config": "wide"}, {"dtype": "bfloat16"}):
            self.assertIsNone(self.rows([{**entry, **other} for entry in BASELINE])["csa"].ratio)

    def test_a_part_without_a_forward_case_has_a_row(self):
        self.assertIsNone(self.rows(BASELINE)["head"].forward)

    def test_the_markdown_table_has_as_many_cells_in_every_line(self):
        parts = bench_ops.report(ENGINE, BASELINE, markdown=True).split("\n\n")[1].splitlines()
        self.assertEqual(len(parts), 4)
        self.assertEqual({entry.count("|") for entry in parts}, {len(bench_ops.PART_HEADER) + 1})

    def test_single_operators_have_a_table_of_their_own(self):
        self.assertIn("swiglu_step/2048  2.00  7 GB/s, 50 %", bench_ops.report(ENGINE, [], markdown=False))


if __name__ == "__main__":
    unittest.main()
