"""The descriptor check lets the wire grow and nothing else."""

import unittest

import planted_tree

import check_descriptors
import source_tree

PROTO = """syntax = "proto3";
package t;
message Empty {}
message Full { int32 a = 1; }
message M { int32 a = 1; string b = 2; enum E { U = 0; V = 1; } E e = 3; oneof x { int32 c = 4; int32 d = 5; } Empty f = 6; Full g = 8; }
service S { rpc Call(M) returns (stream M); }
"""


class DescriptorsTest(planted_tree.PlantedTreeTest):
    def setUp(self):
        super().setUp()
        (self.root / check_descriptors.COMMITTED).parent.mkdir(parents=True)
        self.write(PROTO)
        self.update()

    def write(self, text):
        self.plant("proto/hyperserve/v1/t.proto", text)

    def update(self):
        check_descriptors.update(source_tree.SourceTree(self.root))

    def test_unchanged_passes(self):
        self.assert_found(check_descriptors.check)

    def test_comments_and_order_may_change(self):
        self.write("// new\n" + PROTO.replace("int32 a = 1; string b = 2;", "string b = 2; int32 a = 1;"))
        self.assert_found(check_descriptors.check)

    def test_additions_want_an_update(self):
        self.write(PROTO.replace("string b = 2;", "string b = 2; bytes more = 9;"))
        self.assert_found(check_descriptors.check, "field t.M = 9: not in")
        self.update()
        self.assert_found(check_descriptors.check)

    def test_an_empty_message_may_become_one_of_its_own(self):
        self.write(PROTO.replace("Empty f = 6", "Full f = 6"))
        self.assert_found(check_descriptors.check)
        self.update()

    def test_breaks_are_found_and_never_updated_away(self):
        breaks = {
            "removed field": (("string b = 2;", ""), ["field t.M = 2: removed"]),
            "renumbered field": (("string b = 2;", "string b = 7;"), ["t.M = 2: removed", "t.M = 7: not in"]),
            "renamed field": (("string b = 2;", "string bb = 2;"), ["field t.M = 2: was"]),
            "retyped field": (("string b = 2;", "bytes b = 2;"), ["field t.M = 2: was"]),
            "another message": (("Full g = 8;", "Empty g = 8;"), ["field t.M = 8: was"]),
            "repeated message": (("Empty f = 6;", "repeated Full f = 6;"), ["field t.M = 6: was"]),
            "repeated field": (("string b = 2;", "repeated string b = 2;"), ["field t.M = 2: was"]),
            "field out of its oneof": (("int32 d = 5; }", "} int32 d = 5;"), ["field t.M = 5: was"]),
            "renamed value": (("V = 1;", "W = 1;"), ["value t.M.E = 1: was"]),
            "unary for streaming": (("(stream M)", "(M)"), ["rpc t.S/Call: was"]),
        }
        for name, (change, fragments) in breaks.items():
            with self.subTest(name):
                self.write(PROTO.replace(*change))
                self.assert_found(check_descriptors.check, *fragments)
                self.assertRaises(SystemExit, self.update)


if __name__ == "__main__":
    unittest.main()
