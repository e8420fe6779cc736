#include "core/engine/captured/table_graphs.h"

#include <c10/core/StreamGuard.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/engine/warm_sizes.h"
#include "core/model/net/model.h"
#include "core/plan/plan.h"

namespace hyperserve {
namespace {

// What a table's solve depends on beside the model and the correction. Rows that are states and
// rows of noise are the same to it.
BatchSpec WholeTableOf(const BatchSpec& spec) {
  return {.model = nullptr,
          .correction = nullptr,
          .method = spec.method,
          .tier = spec.tier,
          .entry = spec.entry == Entry::kInput ? Entry::kInput : Entry::kState,
          .direction = spec.direction,
          .span = spec.span,
          .want_distance = spec.want_distance};
}

int64_t BucketOf(const BatchSpec& spec, int64_t rows) {
  return TableBucket(rows, spec.model->field_macs());
}

bool HasDistance(const BatchSpec& spec, int64_t steps) {
  return spec.correction != nullptr && spec.correction->table(steps)->spec->distance.has_value();
}

BatchSpec Wishing(BatchSpec spec, bool distance) {
  spec.want_distance = distance;
  return spec;
}

// A distance changes no bit of the states, so one graph serves who asks for it and who does not.
// For a row alone there is one of each kind: the distance is a sixth of the time of an image.
bool OfEachKind(int64_t bucket) { return bucket == 1; }

at::Tensor PlaceFor(const at::Tensor& tensor) {
  return tensor.defined() ? at::empty_like(tensor) : tensor;
}

std::shared_ptr<TablePlaces> MakePlaces(const c10::Stream& stream, const TableRows& rows,
                                        const TableEnds& ends) {
  const c10::StreamGuard guard(stream);
  return std::make_shared<TablePlaces>(
      TablePlaces{.rows = {.start = PlaceFor(rows.start), .condition = PlaceFor(rows.condition)},
                  .ends = {.state = PlaceFor(ends.state),
                           .finite = PlaceFor(ends.finite),
                           .outputs = PlaceFor(ends.outputs),
                           .squares = PlaceFor(ends.squares)}});
}

void SolveInPlaces(const TableSolve& solve, TablePlaces& places) {
  const TableEnds ends = SolveWholeTable(solve, places.rows);
  places.ends.state.copy_(ends.state);
  places.ends.finite.copy_(ends.finite);
  if (ends.outputs.defined()) places.ends.outputs.copy_(ends.outputs);
  if (ends.squares.defined()) places.ends.squares.copy_(ends.squares);
}

}  // namespace

TableGraphs::TableGraphs(CaptureLanes* lanes) : lanes_(lanes), works_(WholeTableOf) {}

CapturedWorks<TableGraph>::OfBucket TableGraphs::Find(const BatchSpec& spec, int64_t bucket) const {
  return works_.Find(Wishing(spec, OfEachKind(bucket) && spec.want_distance), bucket);
}

absl::Status TableGraphs::Supports(const BatchSpec& spec, int64_t rows) const {
  if (spec.tier == Tier::kFast) return absl::UnimplementedError("its tiers are exact and double");
  if (!TableSolveSupports(spec)) {
    return absl::UnimplementedError(
        "tables with densities, derivatives or guidance, or of a field.pt2, are not captured");
  }
  absl::Status status = absl::UnimplementedError(
      absl::StrCat("no table of ", BucketOf(spec, rows), " rows was captured at a warm-up"));
  for (const auto& [steps, captured] : Find(spec, BucketOf(spec, rows))) {
    status = captured.status;
    if (status.ok()) break;
  }
  return status;
}

std::optional<TableGraphs::Lease> TableGraphs::Take(const BatchSpec& spec, int64_t rows) const {
  std::optional<CaptureLanes::Lease> lane = lanes_->Take();
  if (!lane) return std::nullopt;
  Lease lease{.stream = std::move(lane->stream), .graphs = {}, .bucket = BucketOf(spec, rows)};
  for (const auto& [steps, captured] : Find(spec, lease.bucket)) {
    if (captured.status.ok()) lease.graphs.emplace(steps, captured.by_lane[lane->lane]);
  }
  return lease;
}

bool TableGraphs::Capture(const BatchSpec& spec, int64_t steps, int64_t rows,
                          const StreamLease& scratch) {
  const int64_t bucket = BucketOf(spec, rows);
  if (!TableSolveSupports(spec) || bucket > CapturedRowsMax(spec.model->field_macs())) return false;
  const auto capture = [&](bool for_wish, bool with_distance) {
    return works_.Capture(Wishing(spec, for_wish), bucket, steps, [&] {
      return MakeGraphs(Wishing(spec, with_distance), steps, bucket, scratch);
    });
  };
  const bool has_distance = HasDistance(spec, steps);
  if (!OfEachKind(bucket) || !has_distance) return capture(false, has_distance);
  const bool without = capture(false, false);
  return capture(true, true) || without;
}

TableGraphs::Graphs TableGraphs::MakeGraphs(const BatchSpec& spec, int64_t steps, int64_t bucket,
                                            const StreamLease& scratch) const {
  const TorchScope scope(*scratch);
  const auto solve =
      std::make_shared<const TableSolve>(SetUpTableSolve(spec, steps, bucket, lanes_->device()));
  const TableRows zeros = ZeroTableRows(spec, *solve, lanes_->device());
  const TableEnds ends = SolveWholeTable(*solve, zeros);
  Graphs graphs;
  for (size_t i = 0; i < kGraphLanes; ++i) {
    auto graph = std::make_shared<TableGraph>();
    graph->places = works_.PlacesLike(MakePlaces(lanes_->stream(i), zeros, ends), i);
    graph->solve =
        lanes_->Capture(i, [solve, places = graph->places] { SolveInPlaces(*solve, *places); });
    graph->evaluations = solve->table.evaluations();
    graphs.push_back(std::move(graph));
  }
  return graphs;
}

}  // namespace hyperserve
