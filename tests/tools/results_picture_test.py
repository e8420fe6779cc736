"""bench/draw_results.py: a picture for each file of results, with a line and all marks for each row that has peers."""

import json
import pathlib
import sys
import unittest
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import draw_results  # noqa: E402


class Pictures(unittest.TestCase):
    def test_every_row_with_peers_is_there(self):
        files = sorted((ROOT / "bench/results").glob("*.json"))
        self.assertTrue(files)
        for file in files:
            results = json.loads(file.read_text())
            rows = [row for row in results["rows"] if row.get("peers_ms")]
            picture = xml.etree.ElementTree.fromstring(draw_results.draw(results))
            labels = [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]
            for row in rows:
                self.assertTrue(any(label.startswith(f"{row['plan']}, {row['rows']:,} rows") for label in labels), row)
            names = {name for row in rows for name in row["peers_ms"]} | {"ours"}
            self.assertLessEqual(names, set(labels))
            circles = len(list(picture.iter("{http://www.w3.org/2000/svg}circle")))
            self.assertEqual(circles, sum(1 + len(row["peers_ms"]) for row in rows) + len(names))


if __name__ == "__main__":
    unittest.main()
