"""Every check of tidy.py finds its bad input, and leaves a good one alone."""

import os
import pathlib
import sys
import tempfile
import unittest

import tidy
from cpp_text import code_only, function_lengths


class Layers(unittest.TestCase):
    def problems(self, path, include):
        return tidy.check_layers(path, f"#include {include}\n")

    def test_upward_include_is_found(self):
        self.assertTrue(self.problems("lib/base/a.hpp", '"transport/rail.hpp"'))
        self.assertTrue(self.problems("transport/a.cpp", '"coll/executor.hpp"'))
        self.assertTrue(self.problems("transport/a.cpp", '"shm/segment.hpp"'))
        self.assertTrue(self.problems("launcher/a.cpp", '"transport/rail.hpp"'))
        self.assertTrue(self.problems("transport/a.cpp", '"transport/tcp/socket.hpp"'))
        self.assertTrue(self.problems("transport/tcp/a.cpp", '"transport/verbs/cm.hpp"'))
        self.assertTrue(self.problems("transport/verbs/a.cpp", '"transport/tcp/tcp_rail.hpp"'))
        self.assertTrue(self.problems("examples/a.cpp", '"lib/base/clock.hpp"'))
        self.assertTrue(self.problems("coll/allgather/a.cpp", '"coll/executor.hpp"'))
        self.assertTrue(self.problems("coll/allgather/a.cpp", '"coll/gather/b.hpp"'))
        self.assertTrue(self.problems("coll/schedule/a.cpp", '"lib/base/error.hpp"'))
        self.assertTrue(self.problems("coll/schedule/a.cpp", '"include/allrail/error.hpp"'))
        self.assertTrue(self.problems("perf/bench.cpp", '"lib/world.hpp"'))
        self.assertTrue(self.problems("include/allrail/a.hpp", '"lib/base/error.hpp"'))
        self.assertTrue(self.problems("lib/topology/a.hpp", '"lib/world.hpp"'))

    def test_include_that_the_table_allows_passes(self):
        self.assertFalse(self.problems("lib/base/a.hpp", "<allrail/error.hpp>"))
        self.assertFalse(self.problems("transport/tcp/a.cpp", '"transport/rail.hpp"'))
        self.assertFalse(self.problems("transport/verbs/a.cpp", '"transport/tcp/socket.hpp"'))
        self.assertFalse(self.problems("transport/control/a.cpp", '"transport/tcp/tcp_rail.hpp"'))
        self.assertFalse(self.problems("examples/a.cpp", "<allrail/allrail.hpp>"))
        self.assertFalse(self.problems("coll/executor.cpp", '"coll/allgather/table.hpp"'))
        self.assertFalse(self.problems("coll/executor.cpp", '"shm/segment.hpp"'))
        self.assertFalse(self.problems("coll/allgather/a.cpp", '"coll/schedule/schedule.hpp"'))
        self.assertFalse(self.problems("lib/world.cpp", '"coll/executor.hpp"'))
        self.assertFalse(self.problems("perf/bench.cpp", '"lib/diagnostics.hpp"'))
        self.assertFalse(self.problems("perf/bench.cpp", '"perf/table.hpp"'))
        self.assertFalse(self.problems("tests/unit/a.cpp", '"coll/executor.hpp"'))

    def test_library_header_outside_its_folder_is_found(self):
        self.assertTrue(self.problems("transport/a.cpp", "<pmix.h>"))
        self.assertTrue(self.problems("lib/world.cpp", "<pmix_server.h>"))
        self.assertTrue(self.problems("coll/executor.cpp", "<hwloc.h>"))
        self.assertTrue(self.problems("transport/tcp/a.cpp", "<infiniband/verbs.h>"))
        self.assertTrue(self.problems("perf/bench_main.cpp", "<mpi.h>"))
        self.assertFalse(self.problems("perf/compare_lib/a.c", "<mpi.h>"))
        self.assertFalse(self.problems("launcher/a.cpp", "<pmix.h>"))
        self.assertFalse(self.problems("transport/verbs/a.cpp", "<infiniband/verbs.h>"))

    def test_standard_only_folder_with_another_header_is_found(self):
        self.assertTrue(self.problems("include/allrail/a.hpp", "<sys/socket.h>"))
        self.assertTrue(self.problems("include/allrail/a.hpp", "<fmt/format.h>"))
        self.assertTrue(self.problems("coll/schedule/a.hpp", "<unistd.h>"))
        self.assertFalse(self.problems("include/allrail/a.hpp", "<vector>"))


class Lengths(unittest.TestCase):
    def function(self, lines):
        body = "  work();\n" * (lines - 2)
        return f"namespace a {{\nclass B {{\n  void f() {{\n{body}  }}\n}};\n}}\n"

    def test_long_function_is_found(self):
        self.assertFalse(tidy.check_function_lengths("a.cpp", self.function(70)))
        self.assertTrue(tidy.check_function_lengths("a.cpp", self.function(71)))

    def test_long_function_template_is_found(self):
        text = "template <class T>\nvoid f(T t) {\n" + "  work();\n" * 80 + "}\n"
        self.assertTrue(tidy.check_function_lengths("a.hpp", text))

    def test_long_constructor_with_braced_members_is_found(self):
        text = "A::A() : a_{1}, b_{2} {\n" + "  work();\n" * 80 + "}\n"
        self.assertTrue(tidy.check_function_lengths("a.cpp", text))

    def test_long_class_and_long_table_pass(self):
        members = "  void f() { work(); }\n" * 100
        self.assertFalse(tidy.check_function_lengths("a.cpp", f"class A {{\n{members}}};\n"))
        rows = "  {1, 2},\n" * 100
        self.assertFalse(tidy.check_function_lengths("a.cpp", f"const Row kRows[] = {{\n{rows}}};"))

    def test_braces_in_literals_and_comments_do_not_count(self):
        text = 'void f() {\n  a("}{{");  // {{\n  b(\'{\'); /* { */\n  c(R"({{{)"); n(1\'000);\n}\n'
        self.assertEqual(function_lengths(text), [(1, 5, "void f() {")])

    def test_long_file_is_found(self):
        self.assertFalse(tidy.check_file_length("a.cpp", "\n" * 600))
        self.assertTrue(tidy.check_file_length("a.cpp", "\n" * 601))

    def test_long_line_is_found(self):
        self.assertFalse(tidy.check_columns("a.py", "x" * 100))
        self.assertTrue(tidy.check_columns("a.py", "x" * 101))


class Words(unittest.TestCase):
    def test_banned_word_is_found(self):
        for word in tidy.BANNED_WORDS:
            self.assertTrue(tidy.check_words("README.md", f"one\n{word}: two\n"), word)
        self.assertFalse(tidy.check_words("a.sh", "mktemp -d " + "X" * 6))

    def test_banned_call_is_found(self):
        for call in tidy.BANNED_CALLS:
            self.assertTrue(tidy.check_calls("lib/base/a.cpp", f"  {call}(1);\n"), call)
        self.assertTrue(tidy.check_calls("coll/a.cpp", "std::exit(1);\n"))
        for name in tidy.BANNED_NAMES:
            self.assertTrue(tidy.check_calls("shm/a.cpp", f"::prctl({name}, -1);\n"), name)
            self.assertFalse(tidy.check_calls("tests/a.cpp", f"::prctl({name}, 0);\n"), name)

    def test_other_call_passes(self):
        others = "snprintf(b, 2, f); _exit(1); app.exit(e);\n"
        self.assertFalse(tidy.check_calls("lib/base/a.cpp", others))
        self.assertFalse(tidy.check_calls("lib/base/a.cpp", "// exit(1) is not for libraries\n"))
        self.assertFalse(tidy.check_calls("perf/a.cpp", "exit(1);\n"))

    def test_header_without_pragma_once_is_found(self):
        self.assertTrue(tidy.check_pragma_once("a.hpp", "// #pragma once\n"))
        self.assertFalse(tidy.check_pragma_once("a.hpp", "#pragma once\n"))

    def test_type_of_two_files_is_found(self):
        one = "namespace a::b {\nstruct Link {\n};\n}  // namespace a::b\n"
        other = one.replace("struct Link", "class Link final : public base::Handle")
        for text in (one, other, one.replace("struct Link", "struct alignas(64) Link")):
            twice = {"shm/one.hpp": one, "lib/two.cpp": text}
            self.assertEqual(len(tidy.types_defined_twice(twice)), 1, text)
        for apart in (
            {"shm/one.hpp": one, "tests/two.cpp": other},
            {"shm/one.hpp": one, "lib/two.hpp": other.replace("a::b", "a::c")},
            {"shm/one.hpp": one, "lib/two.cpp": "struct Link;\nclass Link::Part {\n};\n"},
            {"shm/one.hpp": one, "lib/two.cpp": f"namespace a::b {{\nnamespace {{\n{other}"},
        ):
            self.assertFalse(tidy.types_defined_twice(apart), apart)

    def test_names_that_meet_in_a_folder_are_found(self):
        wrapped = "namespace a {{\nnamespace {{\n{}\n}}  // namespace\n}}  // namespace a\n"
        for line in ("constexpr int kMost = 1;", "constexpr A<B> kMost[] = {", "class Walk {"):
            text = wrapped.format(line)
            met = {"coll/one.cpp": text, "coll/two.cpp": text}
            self.assertEqual(len(tidy.names_meeting_in_a_folder(met)), 1, line)
            apart = {"coll/one.cpp": text, "coll/alltoall/two.cpp": text, "tests/a.cpp": text}
            self.assertFalse(tidy.names_meeting_in_a_folder(apart), line)
        other = wrapped.format("  static constexpr int kMost = 1;")
        one = {"coll/one.cpp": wrapped.format("constexpr int kMost = 1;"), "coll/two.cpp": other}
        self.assertFalse(tidy.names_meeting_in_a_folder(one), "a member")

    def test_machine_path_is_found(self):
        home = "/ho" + "me/someone/allrail"
        self.assertTrue(tidy.check_machine_paths("a.sh", f"cd {home}\n"))
        self.assertTrue(tidy.check_machine_paths("a.sh", "cd /disk7/x", root="/disk7/x/allrail"))
        self.assertFalse(tidy.check_machine_paths("a.sh", "cd /usr/lib", root="/usr/src/allrail"))

    def test_code_only_keeps_line_numbers(self):
        text = 'a\n/* b\nc */ d\n#define E \\\n  f\ng "h"\n'
        self.assertEqual(code_only(text).splitlines(), ["a", "", " d", "", "", "g "])


class Tree(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = self.folder.name
        self.addCleanup(self.folder.cleanup)

    def write(self, path, text):
        file = pathlib.Path(self.root, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def test_empty_tree_does_not_pass(self):
        self.assertEqual(tidy.check_tree(self.root), 1)

    def test_tree_with_one_missing_include_fails(self):
        for index in range(10):
            self.write(f"shm/{index}.cpp", "int x;\n")
        self.assertEqual(tidy.check_tree(self.root), 0)
        self.write("shm/0.cpp", '#include "shm/none.hpp"\n')
        self.assertEqual(tidy.check_tree(self.root), 1)

    def test_header_that_needs_another_is_found(self):
        compiler = [os.environ.get("TIDY_CXX", "c++")]
        self.write("shm/good.hpp", "#pragma once\n#include <string>\nstd::string good();\n")
        self.assertEqual(tidy.check_headers(self.root, self.root + "/work", compiler), 0)
        self.write("shm/bad.hpp", "#pragma once\nstd::string bad();\n")
        self.assertEqual(tidy.check_headers(self.root, self.root + "/work", compiler), 1)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1))
