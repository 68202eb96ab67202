"""Tests of tools/check: a small sound repository passes, and each way of spoiling it is found at the right line."""
import importlib.machinery
import importlib.util
import shutil
import tempfile
import unittest
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def load_check():
    loader = importlib.machinery.SourceFileLoader("check", str(REPOSITORY / "tools/check"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("check", loader))
    loader.exec_module(module)
    return module


check = load_check()

SOUND = {
    ".clang-format": (REPOSITORY / ".clang-format").read_text(),
    "src/asterism/core/CMakeLists.txt": "asterism_library(NAME core\n  SRCS\n    error.cpp)\n",
    "src/asterism/core/error.h": "#pragma once\n",
    "src/asterism/core/error.cpp": '#include "asterism/core/error.h"\n',
    "src/asterism/ops/CMakeLists.txt": "asterism_library(NAME ops\n  SRCS\n    swiglu.cpp\n    cpu/swiglu_kernel.cpp\n"
                                       "  DEPS core)\n",
    "src/asterism/ops/swiglu.cpp": "#include <ATen/ATen.h>\n\n#include \"asterism/core/error.h\"\n",
    "src/asterism/ops/cpu/swiglu_kernel.cpp": "#include <cmath>\n",
    "tests/CMakeLists.txt": "asterism_test(NAME core SRCS core/error_test.cpp DEPS core)\n"
                            "asterism_test(NAME ops SRCS ops/swiglu_test.cpp DEPS ops)\n",
    "tests/core/error_test.cpp": "#include <gtest/gtest.h>\n",
    "tests/ops/swiglu_test.cpp": "#include <gtest/gtest.h>\n",
}


class CheckTest(unittest.TestCase):
    def setUp(self):
        self.root = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)
        for path, text in SOUND.items():
            self.write(path, text)

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def findings(self):
        return {(finding.file, finding.line, finding.rule) for finding in check.check(self.root)}

    def expect(self, path, line, rule):
        self.assertEqual(self.findings(), {(path, line, rule)})

    def test_sound_repository_passes(self):
        self.assertEqual(self.findings(), set())

    def test_upward_include(self):
        self.write("src/asterism/core/error.h", '#pragma once\n\n#include "asterism/ops/swiglu.h"\n')
        self.assertIn(("src/asterism/core/error.h", 3, "layers"), self.findings())

    def test_unknown_module(self):
        self.write("src/asterism/engine/engine.h", "#pragma once\n")
        self.expect("src/asterism/engine/engine.h", 1, "layers")

    def test_torch_in_kernel(self):
        self.write("src/asterism/ops/cpu/swiglu_kernel.cpp", "#include <cmath>\n\n#include <c10/util/Half.h>\n")
        self.expect("src/asterism/ops/cpu/swiglu_kernel.cpp", 3, "kernels")

    def test_torch_umbrella_header(self):
        self.write("tests/ops/swiglu_test.cpp", "#include <torch/torch.h>\n")
        self.expect("tests/ops/swiglu_test.cpp", 1, "torch-header")

    def test_upward_dependency_in_cmake(self):
        self.write("src/asterism/ops/CMakeLists.txt", "\nasterism_library(NAME ops\n  SRCS swiglu.cpp "
                   "cpu/swiglu_kernel.cpp\n  DEPS core train)\n")
        self.expect("src/asterism/ops/CMakeLists.txt", 2, "deps")

    def test_include_without_dependency_in_cmake(self):
        self.write("src/asterism/ops/CMakeLists.txt",
                   "asterism_library(NAME ops SRCS swiglu.cpp cpu/swiglu_kernel.cpp)\n")
        self.expect("src/asterism/ops/swiglu.cpp", 3, "deps")

    def test_file_that_is_not_compiled(self):
        self.write("tests/CMakeLists.txt", "asterism_test(NAME core SRCS core/error_test.cpp DEPS core)\n")
        self.expect("tests/ops/swiglu_test.cpp", 1, "listed")

    def test_missing_test(self):
        (self.root / "tests/core/error_test.cpp").unlink()
        self.expect("src/asterism/core/error.cpp", 1, "mirror")

    def test_long_file(self):
        self.write("src/asterism/core/error.h", "#pragma once\n" + "// A line.\n" * 600)
        self.expect("src/asterism/core/error.h", 601, "file-size")

    def test_long_line(self):
        self.write("cmake/Targets.cmake", "\n# " + "x" * 119 + "\n")
        self.expect("cmake/Targets.cmake", 2, "line-length")

    def test_long_line_counts_characters_not_bytes(self):
        self.write("cmake/Targets.cmake", "# " + "ᵀ" * 118 + "\n")
        self.assertEqual(self.findings(), set())

    def test_meaningless_file_name(self):
        self.write("src/asterism/core/string_utils.h", "#pragma once\n")
        self.expect("src/asterism/core/string_utils.h", 1, "names")

    def test_path_of_one_machine(self):
        self.write("docs/building.md", "Go to\n/ho" + "me/someone/asterism\n")
        self.expect("docs/building.md", 2, "home-path")

    def test_note_about_unfinished_work(self):
        self.write("src/asterism/core/error.h", "#pragma once\n\n// TO" + "DO: finish\n")
        self.expect("src/asterism/core/error.h", 3, "notes")

    @unittest.skipUnless(check.find_formatter(REPOSITORY), "the right clang-format is not here")
    def test_formatting(self):
        self.write("src/asterism/core/error.h", "#pragma once\n\nint   f();\n")
        self.expect("src/asterism/core/error.h", 3, "format")

    def test_ignored_folders(self):
        self.write("build/generated.cpp", "#include <torch/torch.h>\n")
        self.write(".venv/lib/utils.py", "\n")
        self.assertEqual(self.findings(), set())


class LongFunctionsTest(unittest.TestCase):
    def function(self, head, body_lines, line="  f();\n"):
        return f"{head} {{\n" + line * body_lines + "}\n"

    def lengths(self, text):
        return list(check.long_functions(text))

    def test_limit_counts_the_lines_with_braces(self):
        self.assertEqual(self.lengths(self.function("void f()", 78)), [])
        self.assertEqual(self.lengths(self.function("void f()", 79)), [(1, 81)])

    def test_scopes_are_not_functions(self):
        text = "namespace a {\nstruct B {\n" + self.function("int f() const", 5) * 30 + "};\n}  // namespace a\n"
        self.assertEqual(self.lengths(text), [])

    def test_function_inside_class_and_namespace(self):
        text = "namespace a {\nclass B : public C {\n" + self.function("int f() const", 90) + "};\n}\n"
        self.assertEqual(self.lengths(text), [(3, 92)])

    def test_braces_in_strings_comments_and_characters(self):
        text = self.function("void f()", 20, "  g(\"{\", '{', R\"({)\", 1'000);  // {\n") * 10
        self.assertEqual(self.lengths(text), [])

    def test_lambda_counts_as_part_of_its_function(self):
        text = self.function("void f()", 1, "  g([&](int i) {\n" + "    h();\n" * 90 + "  });\n")
        self.assertEqual(self.lengths(text), [(1, 94)])

    def test_constructor_with_braced_initialiser(self):
        text = self.function("A::A(int a) : a_{a}", 90)
        self.assertEqual(self.lengths(text), [(1, 92)])

    def test_tables_are_not_functions(self):
        text = "const std::map<int, int> kTable = {\n" + "    {1, 2},\n" * 90 + "};\n"
        self.assertEqual(self.lengths(text), [])


if __name__ == "__main__":
    unittest.main()
