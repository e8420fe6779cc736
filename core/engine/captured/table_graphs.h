// The captured tables of one device: whole solves of learned:n and ab2:n, of each spec, bucket and
// number of steps one for each lane, with its distances where the table has them; for one row alone
// another one without. A solve is captured at a warm-up, before it serves; serving copies rows to
// its places, starts it, and reads its ends there. Thread-safe.
#pragma once

#include <ATen/ATen.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "core/engine/batch_spec.h"
#include "core/engine/captured/capture_lanes.h"
#include "core/engine/captured/captured_work.h"
#include "core/engine/captured/captured_works.h"
#include "core/engine/captured/table_solve.h"
#include "core/engine/torch_scope.h"

namespace hyperserve {

// Where the rows of a bucket stand before and after a captured solve.
struct TablePlaces {
  TableRows rows;
  TableEnds ends;
  std::array<at::Tensor, 6> All() const {
    return {rows.start, rows.condition, ends.state, ends.finite, ends.outputs, ends.squares};
  }
};

struct TableGraph {
  std::shared_ptr<TablePlaces> places;
  std::unique_ptr<CapturedWork> solve;
  int evaluations = 0;  // of f
};
using TableGraphsBySteps = std::map<int64_t, std::shared_ptr<const TableGraph>>;

class TableGraphs {
 public:
  // The lanes must outlive it.
  explicit TableGraphs(CaptureLanes* lanes);

  // OK where a table of the spec was captured for the bucket of so many rows, else kUnimplemented
  // with the reason.
  absl::Status Supports(const BatchSpec& spec, int64_t rows) const;

  // A lane for one run alone, with all tables of the spec and the bucket in it.
  struct Lease {
    StreamLease stream;
    TableGraphsBySteps graphs;
    int64_t bucket = 0;
  };
  // nullopt: every lane is taken. Precondition: Supports(spec, rows).ok().
  std::optional<Lease> Take(const BatchSpec& spec, int64_t rows) const;

  // As StepGraphs::Capture, for the table of so many steps.
  bool Capture(const BatchSpec& spec, int64_t steps, int64_t rows, const StreamLease& scratch);

 private:
  // What was captured for the spec in this bucket, by number of steps.
  CapturedWorks<TableGraph>::OfBucket Find(const BatchSpec& spec, int64_t bucket) const;

  using Graphs = std::vector<std::shared_ptr<const TableGraph>>;  // one for each lane
  Graphs MakeGraphs(const BatchSpec& spec, int64_t steps, int64_t bucket,
                    const StreamLease& scratch) const;

  CaptureLanes* const lanes_;
  CapturedWorks<TableGraph> works_;
};

}  // namespace hyperserve
