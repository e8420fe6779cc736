// The fused engine: whole solves of flows, few launches for a segment: fixed steps in tier fast,
// and error control in tier exact. Every row is solved by the first Advance after its admission.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "core/engine/batch_spec.h"
#include "core/engine/engine.h"
#include "core/engine/fused/fused_flow.h"
#include "core/engine/torch_scope.h"

namespace hyperserve {

// A launch is never interrupted, so it takes no more than 20 ms. An evaluation of f costs a row 0.2
// ns of an H100 (width 128, four layers; bench/results); 1 ns leaves room for six layers and for
// slower cards, which were not measured.
inline constexpr int64_t kLaunchRowEvaluations = 20'000'000;
// Fewer rows take 3 us for an evaluation (H100), whatever their number.
inline constexpr int64_t kLaunchEvaluationsMax = 5000;
// Fewer rows leave most of the device idle, and take no less time.
inline constexpr int64_t kLaunchRowsLeast = 8192;

// The rows of one launch that makes so many evaluations of f for each.
int64_t LaunchRows(int64_t evaluations);

// The flow of a run's spec; of a learned solver, by its table of so many evaluations. Throws as
// LibTorch does.
using FindFusedFlow =
    std::function<absl::StatusOr<std::shared_ptr<const FusedFlow>>(int64_t evaluations)>;

// Admit refuses a segment whose rows take more evaluations of f than kLaunchEvaluationsMax with
// kInvalidArgument; tangents count as evaluations. `stream` takes all work of the run and decides
// its device. Rows that the kernel did not solve are solved again by the readable engine in tier
// exact, as if each were alone. Throws as LibTorch does. Precondition: the engine of the flows
// supports the spec (FusedFlows).
std::unique_ptr<Run> MakeFusedRun(const BatchSpec& spec, StreamLease stream, FindFusedFlow find);

}  // namespace hyperserve
