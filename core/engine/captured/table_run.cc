#include "core/engine/captured/table_run.h"

#include <ATen/ATen.h>

#include <functional>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/engine/captured/table_solve.h"
#include "core/engine/choose_engine.h"
#include "core/engine/readable/batch_rows.h"
#include "core/engine/readable/row_costs.h"
#include "core/engine/readable/row_numbers.h"
#include "core/engine/readable/segment_results.h"
#include "core/engine/readable/solve_setup.h"
#include "core/engine/waiting_run.h"
#include "core/io/tensor.h"
#include "core/model/net/model.h"
#include "core/model/net/net.h"
#include "core/ode/solve_options.h"
#include "core/ode/solver_table.h"
#include "core/ode/space.h"
#include "core/plan/row_status.h"

namespace hyperserve {
namespace {

class TableRun final : public WaitingRun<TableGraph> {
 public:
  TableRun(const BatchSpec& spec, TableGraphs::Lease lease)
      : WaitingRun(spec, std::move(lease.stream)),
        graphs_(std::move(lease.graphs)),
        bucket_(lease.bucket),
        costs_(spec) {}

  int64_t room() const override {
    int64_t room = bucket_;
    for (const Waiting& one : waiting_) room -= one.segment.rows;
    return room;
  }

  absl::StatusOr<Ticket> Admit(const Segment& segment) override {
    HS_RETURN_IF_ERROR(CheckSegment(spec_, segment));
    if (segment.rows > room()) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the run has room for ", room(), " more rows, not for ", segment.rows));
    }
    const auto graph = graphs_.find(StepsOf(segment));
    return Await(segment, graph == graphs_.end() ? nullptr : graph->second);
  }

 private:
  // Segments that ask for the same number of steps.
  struct Group {
    std::shared_ptr<const TableGraph> graph;  // null: it was not captured
    std::vector<Segment> segments;
    SegmentResults results;
    int64_t rows = 0;
  };

  absl::Status SolveWaiting(const std::function<bool()>& cancelled) override {
    std::map<int64_t, Group> groups;
    for (const Waiting& one : waiting_) {
      Group& group = groups[StepsOf(one.segment)];
      group.graph = one.program;
      group.segments.push_back(one.segment);
      group.results.Expect(group.rows,
                           {.ticket = one.ticket, .rows = one.segment.rows, .bucket = bucket_});
      group.rows += one.segment.rows;
    }
    for (auto& [steps, group] : groups) {
      HS_RETURN_IF_ERROR(CheckCancelled(cancelled));
      group.results.Take(Solved(steps, group));
      for (SolvedSegment& one : group.results.TakeWhole()) finished_.push_back(std::move(one));
    }
    return absl::OkStatus();
  }

  EndedRows Solved(int64_t steps, const Group& group) const {
    const at::Device device = stream_->device();
    const at::ScalarType dtype = SolveDtype(spec_);
    const TableRows rows{.start = ReadRows(spec_, group.segments, dtype, device),
                         .condition = ReadConditions(spec_, group.segments, dtype, device)};
    if (group.graph == nullptr) {
      const TableSolve solve = SetUpTableSolve(spec_, steps, bucket_, device);
      TableRows all = ZeroTableRows(spec_, solve, device);
      Put(rows, all);
      return Ended(SolveWholeTable(solve, all), group, solve.table.evaluations());
    }
    Put(rows, group.graph->places->rows);
    group.graph->solve->Start();
    return Ended(group.graph->places->ends, group, group.graph->evaluations);
  }

  // In front of what stands there, which is no matter to them.
  static void Put(const TableRows& rows, TableRows& places) {
    places.start.narrow(0, 0, rows.start.size(0)).copy_(rows.start);
    if (!rows.condition.defined()) return;
    places.condition.narrow(0, 0, rows.condition.size(0)).copy_(rows.condition);
  }

  EndedRows Ended(const TableEnds& ends, const Group& group, int evaluations) const {
    EndedRows ended{.numbers = std::vector<int64_t>(static_cast<size_t>(group.rows)),
                    .result = {.status = {}}};
    std::iota(ended.numbers.begin(), ended.numbers.end(), 0);
    BatchResult& result = ended.result;
    const auto read = [&](const at::Tensor& all) {
      return HostTensorFrom(all.narrow(0, 0, group.rows));
    };
    if (spec_.want_state) result.state = read(ends.state);
    if (spec_.want_outputs) result.outputs = read(ends.outputs);
    if (spec_.want_distance) result.distance = Distances(ends.squares.narrow(1, 0, group.rows));
    const at::Tensor finite = ends.finite.narrow(0, 0, group.rows).to(at::kCPU);
    const SolveOptions options = OptionsOf(spec_);
    const int64_t corrections = CorrectionsOf(group.segments.front());
    for (int64_t i = 0; i < group.rows; ++i) {
      const bool good = finite.const_data_ptr<bool>()[i];
      result.status.push_back(good ? RowStatus::kConverged : RowStatus::kNonFinite);
      if (spec_.want_depth) result.depth.push_back(good ? options.s1 : options.s0);
      costs_.Append(evaluations, corrections, result);
    }
    return ended;
  }

  // squares: TableEnds::squares.
  PerRow Distances(const at::Tensor& squares) const {
    const int64_t numbers = spec_.model->state_elements();
    return DistancesOfNorms(RowNorms(RowValues(squares[0]), numbers),
                            RowNorms(RowValues(squares[1]), numbers));
  }

  // Fixed after construction.
  const TableGraphsBySteps graphs_;
  const int64_t bucket_;
  const RowCosts costs_;
};

}  // namespace

std::unique_ptr<Run> MakeTableRun(const BatchSpec& spec, TableGraphs::Lease lease) {
  return std::make_unique<TableRun>(spec, std::move(lease));
}

}  // namespace hyperserve
