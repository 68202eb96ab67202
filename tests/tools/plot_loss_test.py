"""Tests of tools/plot_loss."""
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import shutil
import tempfile
import unittest
import xml.etree.ElementTree
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "tools/plot_loss"
SVG = "{http://www.w3.org/2000/svg}"


def load_plot_loss():
    loader = importlib.machinery.SourceFileLoader("plot_loss", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("plot_loss", loader))
    loader.exec_module(module)
    return module


plot_loss = load_plot_loss()


class PlotLossTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.metrics = self.folder / "metrics.jsonl"
        self.out = self.folder / "loss.svg"

    def run_on(self, text, *options):
        self.metrics.write_text(text, encoding="utf-8")
        self.errors = io.StringIO()
        with contextlib.redirect_stderr(self.errors):
            return plot_loss.main([str(self.metrics), str(self.out), *options])

    def rows(self, count):
        rows = [{"step": step, "loss": 5.0 - 0.03 * step} for step in range(1, count + 1)]
        for row in rows[9::10]:
            row["eval_loss"] = row["loss"] + 0.1
        return "".join(json.dumps(row) + "\n" for row in rows)

    def test_draws_every_step_and_every_evaluation(self):
        self.assertEqual(self.run_on(self.rows(60), "--title", "a < b"), 0)
        picture = xml.etree.ElementTree.parse(self.out).getroot()
        lines = picture.findall(f"{SVG}polyline")
        self.assertEqual([len(line.get("points").split()) for line in lines], [60, 60, 6])
        self.assertEqual(len(picture.findall(f"{SVG}circle")), 6)
        texts = [text.text for text in picture.findall(f"{SVG}text")]
        self.assertIn("a < b", texts)
        self.assertIn("optimizer step", texts)

    def test_falling_loss_falls_in_the_picture(self):
        self.run_on(self.rows(40))
        points = xml.etree.ElementTree.parse(self.out).getroot().find(f"{SVG}polyline").get("points").split()
        heights = [float(point.split(",")[1]) for point in points]
        self.assertEqual(heights, sorted(heights))  # y grows downwards
        self.assertLess(heights[0], heights[-1])

    def test_one_step(self):
        self.assertEqual(self.run_on('{"step": 1, "loss": 2.0}\n'), 0)

    def test_bad_line_is_named_and_nothing_is_written(self):
        self.assertEqual(self.run_on('{"step": 1, "loss": 2.0}\n{"step": 2, "lo'), 2)
        self.assertIn("metrics.jsonl:2", self.errors.getvalue())
        self.assertFalse(self.out.exists())

    def test_no_loss_and_no_file(self):
        self.assertEqual(self.run_on(""), 2)
        self.metrics.unlink()
        with contextlib.redirect_stderr(io.StringIO()):
            self.assertEqual(plot_loss.main([str(self.metrics), str(self.out)]), 2)

    def test_running_mean_keeps_a_straight_line(self):
        line = [(float(step), 2.0 * step) for step in range(20)]
        for (_, expected), (_, got) in zip(line, plot_loss.running_mean(line, 4)):
            self.assertAlmostEqual(got, expected)

    def test_ticks_are_round_and_inside(self):
        self.assertEqual(plot_loss.ticks(0.0, 10.0), [0, 2, 4, 6, 8, 10])
        self.assertTrue(all(3.1 <= tick <= 4.9 for tick in plot_loss.ticks(3.1, 4.9)))


if __name__ == "__main__":
    unittest.main()
