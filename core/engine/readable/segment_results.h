// Puts rows that a solver gives back in its own order into the results of the segments that they
// came with. Bookkeeping only: no tensor of LibTorch, no solver.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "core/engine/engine.h"

namespace hyperserve {

// Rows that ended together, and what there is to tell of them, in the same order.
struct EndedRows {
  std::vector<int64_t> numbers;  // as the solver counts rows
  BatchResult result;            // its bucket is not used
};

class SegmentResults {
 public:
  struct Segment {
    Ticket ticket = 0;
    int64_t rows = 0;
    int64_t bucket = 0;                          // told in its result
    std::vector<double> start_log_density = {};  // added to that of its rows; empty: nothing is
  };
  // The rows of the segment are those of the solver from `first` on.
  void Expect(int64_t first, Segment segment);

  // The rows of the ticket, which is forgotten: later rows of it are ignored. None: unknown.
  struct RowRange {
    int64_t first = 0, rows = 0;
  };
  std::optional<RowRange> Forget(Ticket ticket);

  void Take(EndedRows ended);

  // The segments that have become whole since the last call, in that order.
  std::vector<SolvedSegment> TakeWhole();

  int64_t missing_rows() const { return missing_rows_; }

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
