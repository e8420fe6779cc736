// Collects rows, which a solver returns in its own order, into the results of their segments.
// Bookkeeping only, without LibTorch and without a solver. Nothing here fails. Belongs to one run;
// not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "core/engine/engine.h"

namespace hyperserve {

// Rows that ended together, and their results in the same order.
struct EndedRows {
  std::vector<int64_t> numbers;  // the solver's row numbers
  BatchResult result;            // its bucket is ignored
};

class SegmentResults {
 public:
  // What is known of a segment when its rows go to the solver. It holds no data of the rows.
  struct Segment {
    Ticket ticket = 0;
    int64_t rows = 0;
    int64_t bucket = 0;                          // copied into its result
    std::vector<double> start_log_density = {};  // added to its rows' log-densities; empty: none
  };
  // Announces a segment. Its rows have the solver's numbers from `first` on.
  void Expect(int64_t first, Segment segment);

  // The solver's numbers of a segment's rows.
  struct RowRange {
    int64_t first = 0, rows = 0;
  };
  // Forgets a segment that TakeWhole has not returned; Take ignores its rows from then on. Returns
  // its rows where some are missing; nullopt: none is, or the ticket is unknown.
  std::optional<RowRange> Forget(Ticket ticket);

  // Puts each row into its segment. Each row of an expected segment comes once, in any order and
  // any company; rows of forgotten segments are ignored.
  void Take(EndedRows ended);

  // The segments that have become complete since the last call, in that order. The results own
  // their arrays.
  std::vector<SolvedSegment> TakeWhole();

  int64_t missing_rows() const { return missing_rows_; }  // expected and not taken yet

 private:
  struct Expected {
    Segment segment;
    int64_t missing = 0;
    BatchResult result;
  };

  void Complete(std::map<int64_t, Expected>::iterator found);

  std::map<int64_t, Expected> expected_;  // by the number of the first row
  std::vector<SolvedSegment> whole_;
  int64_t missing_rows_ = 0;
};

}  // namespace hyperserve
