"""Each check finds what is planted, and nothing in a sound tree."""

import unittest

import planted_tree
import source_tree

import check_format
import check_includes
import check_sizes
import check_text


class FormatTest(planted_tree.PlantedTreeTest):
    def test_finds_an_unformatted_file(self):
        self.plant("core/io/good.cc", "int x = 1;\n")
        self.plant("core/io/bad.cc", "int   x=1;\n")
        self.plant("core/io/bad.cu", "int   y=1;\n")
        self.assert_found(check_format.check, "core/io/bad.cc:1: not formatted", "core/io/bad.cu:1: not formatted")

    def test_leaves_alone_what_git_does_not_track_or_is_gone(self):
        self.plant("core/io/gone.cc", "int   x=1;\n")
        (self.root / "core/io/gone.cc").unlink()
        (self.root / "untracked.cc").write_text("int   x=1;\n")
        self.assert_found(check_format.check)


class IncludesTest(planted_tree.PlantedTreeTest):
    def test_allows_the_table(self):
        self.plant("core/plan/plan.h", '#include <string>\n#include "core/base/status.h"\n')
        self.plant("server/main.cc", '#include "server/rpc/rpc.h"\n#include "core/engine/engine.h"\n')
        self.plant("tests/core/plan/plan_test.cc", '#include "core/plan/plan.h"\n#include "gtest/gtest.h"\n')
        self.plant("core/model/spec/spec_json.cc", '#include "hyperserve/v1/model.pb.h"\n')
        self.assert_found(check_includes.check)

    def test_finds_a_wrong_direction(self):
        self.plant("core/base/status.h", '#include "core/plan/plan.h"\n')
        self.plant("core/io/idx.cc", '#  include "server/clock/clock.h"\n')
        self.plant("server/batching/batcher.cc", '#include "hyperserve/v1/hyperserve.pb.h"\n')
        self.plant("core/model/net/net.cc", '#include "hyperserve/v1/model.pb.h"\n')
        self.plant("client/client.cc", '#include "core/model/net/model.h"\n')
        self.plant("core/engine/engine.cc", '#include "tests/testing/fake_engine.h"\n')
        self.assert_found(check_includes.check, "core/base may not include core/plan", "core/io may not include server",
                          "server/batching may not include hyperserve/v1", "core/model/net may not include hyperserve/v1",
                          "client may not include core/model", "core/engine may not include tests/")

    def test_finds_libtorch_through_a_header(self):
        self.plant("core/model/net/net.h", "#include <ATen/ATen.h>\n")
        self.plant("core/model/net/model.h", '#include "core/model/net/net.h"\n')
        self.plant("server/registry/registry.cc", '#include "core/model/net/model.h"\n')
        self.plant("client/client.cc", "#include <ATen/ATen.h>\n")
        self.assert_found(check_includes.check, "server/registry/registry.cc: reaches LibTorch",
                          "client/client.cc: reaches LibTorch")

    def test_finds_the_wire_below_its_edge(self):
        self.plant("server/registry/registry.h", "#include <grpcpp/grpcpp.h>\n")
        self.plant("server/calls/ask.cc", '#include "server/registry/registry.h"\n')
        self.plant("server/calls/good.cc", "#include <string>\n")
        self.assert_found(check_includes.check, "server/calls/ask.cc: reaches the wire")

    def test_finds_abseil_in_kernels(self):
        self.plant("core/plan/plan.h", '#include "absl/status/status.h"\n')
        self.plant("core/kernels/mlp.cu", '#include "core/plan/plan.h"\n')
        self.assert_found(check_includes.check, "core/kernels/mlp.cu: reaches Abseil")

    def test_finds_a_folder_without_a_row_and_relative_includes(self):
        self.plant("core/cache/cache.h", "int x;\n")
        self.plant("core/io/idx.cc", '#include "../base/status.h"\n')
        self.assert_found(check_includes.check, "core/cache/cache.h: its folder has no row", "is not from the root")


    def test_finds_cycles_of_modules(self):
        self.plant("core/plan/plan.h", "int x;\n")
        self.plant("core/plan/plan.cc", '#include "core/plan/plan.h"\n#include "core/plan/method.h"\n')
        self.plant("core/plan/method.h", '#include "core/base/status.h"\n')
        self.plant("core/plan/method.cc", '#include "core/plan/method.h"\n')
        self.assert_found(check_includes.check)
        self.plant("core/plan/method.cc", '#include "core/plan/row.h"\n')
        self.plant("core/plan/row.h", '#include "core/plan/plan.h"\n')
        self.assert_found(check_includes.check, "a cycle of modules: core/plan/method -> core/plan/row -> core/plan/plan -> "
                                                "core/plan/method")

    def test_finds_what_comes_through_somebody_elses_header(self):
        self.plant("core/io/tensor.h", """namespace hyperserve {
enum class Dtype { kF32 };
struct Shape { int Rank() const { return Depth(); } };
inline constexpr int kRankMax = 8;
inline Shape Flat(Shape shape) { return shape; }
}  // namespace hyperserve
""")
        self.plant("core/io/idx.h", '#include "core/io/tensor.h"\nclass Reader;\nShape Read(Reader* reader);\n')
        self.plant("core/io/reader.h", "class Reader {};\n")
        self.plant("core/io/idx.cc", '#include "core/io/idx.h"\nShape Read(Reader* r) { return Flat({kRankMax}); }\n')
        self.plant("client/good.cc", """#include "core/io/idx.h"
// Shape
namespace { int Flat(int x) { return x; } }
TEST(Shape, Flat) { say("Shape"); other::Shape s = t.Flat() + Flat(1) + u->kRankMax; }
""")
        self.plant("client/bad.cc", '#include "core/io/idx.h"\nauto x = hyperserve::Flat({kRankMax, Dtype::kF32});\n')
        self.plant("proto/hyperserve/v1/a.proto", "package hyperserve.v1;\nmessage Plan {\n}\n")
        self.plant("client/wire.cc", '#include "client/wire.h"\nv1::Plan plan;\n')
        self.assert_found(check_includes.check, "core/io/idx.cc: uses Reader: include core/io/reader.h",
                          "client/bad.cc: uses Dtype, Flat, kRankMax: include core/io/tensor.h",
                          "client/wire.cc: uses v1::Plan: include hyperserve/v1/a.pb.h")
        check_includes.mend(source_tree.SourceTree(self.root))
        self.assert_found(check_includes.check)
        self.assertEqual((self.root / "client/wire.cc").read_text(),
                         '#include "client/wire.h"\n#include "hyperserve/v1/a.pb.h"\nv1::Plan plan;\n')


class SizesTest(planted_tree.PlantedTreeTest):
    def test_finds_long_files(self):
        self.plant("tools/README.md", "x\n")
        self.plant("tools/good.py", "x\n" * 400)
        self.plant("tools/bad.py", "x\n" * 401)
        self.assert_found(check_sizes.check, "tools/bad.py: 401 lines")

    def test_finds_long_functions(self):
        self.plant("client/README.md", "x\n")
        body = "  f();\n" * 58
        self.plant("client/good.cc", f"int Good(int x) {{\n{body}}}\n")
        self.plant("client/bad.cc", f"""namespace a {{
const char* brace = "{{";
struct B : C {{
  B() : x_{{1}} {{}}
  int Bad(std::function<void(int)> f) const {{
{body}    f();
  }}  // {{
}};
// a comment {{
int Also() {{
#define X {{
{body}  f();
}}
}}
""")
        self.assert_found(check_sizes.check, "client/bad.cc:5: a function of 61 lines",
                          "client/bad.cc:68: a function of 62 lines")

    def test_tables_and_classes_are_no_functions(self):
        self.plant("client/README.md", "x\n")
        rows = "    {f(1), 2},\n" * 70
        self.plant("client/table.cc", f"constexpr Row kRows[] = {{\n{rows}}};\n")
        self.plant("client/class.h", "class A final : public B {\n public:\n" + "  void F() { G(); }\n" * 70 + "};\n")
        self.assert_found(check_sizes.check)

    def test_finds_full_folders(self):
        self.plant("client/README.md", "x\n")
        for i in range(25):
            self.plant(f"client/frame/{i}.cc", "int x;\n")
            self.plant(f"client/command/{i}.cc", "int x;\n")
        self.plant("client/command/more.h", "int x;\n")
        self.assert_found(check_sizes.check, "client/command: 26 sources, more than 25")

    def test_finds_missing_and_long_readmes(self):
        self.plant("README.md", "x\n" * 121)
        self.plant("core/README.md", "x\n" * 41)
        self.plant("core/io/idx.cc", "int x;\n")
        self.assert_found(check_sizes.check, "core/io: no README.md", "core/README.md: 41 lines",
                          "README.md: 121 lines")


class TextTest(planted_tree.PlantedTreeTest):
    def test_finds_unfinished_work_and_machine_paths(self):
        self.plant("a.cc", "// TO" + "DO: later\n")
        self.plant("b.md", "see /ro" + "ot/project\n")
        self.plant("c.sh", "cd /wo" + "rk/main\n")
        self.plant("good.md", "a to-do list; $HOME/work/x; /usr/share/work/; https://host/home\n")
        self.assert_found(check_text.check, "a.cc:1: unfinished", "b.md:1: a path", "c.sh:1: a path")

    def test_passes_over_binaries(self):
        (self.root / "x.bin").write_bytes(b"\xff\xfeTO" + b"DO")
        self.git("add", "x.bin")
        self.assert_found(check_text.check)


if __name__ == "__main__":
    unittest.main()
