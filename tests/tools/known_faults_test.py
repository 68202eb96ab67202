"""docs/known-faults.md names tests that exist."""
import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


class KnownFaults(unittest.TestCase):
    def test_every_test_of_the_page_exists(self):
        page = (ROOT / "docs/known-faults.md").read_text(encoding="utf-8")
        named = set(re.findall(r"`([A-Z]\w+)\.([A-Z]\w+)`", page))
        self.assertGreater(len(named), 20)
        sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*_test.cpp"))
        existing = set(re.findall(r"^TEST(?:_F|_P)?\((\w+), (\w+)\)", sources, flags=re.MULTILINE))
        self.assertEqual(named - existing, set())


if __name__ == "__main__":
    unittest.main()
