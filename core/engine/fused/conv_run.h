// The fused engine on images: whole solves of fields of convolutions, few launches for a segment,
// tier fast. Every row is solved by the first Advance after its admission. The input and
// the output map are those of the readable engine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "core/engine/batch_spec.h"
#include "core/engine/engine.h"
#include "core/engine/fused/fused_conv.h"
#include "core/engine/torch_scope.h"

namespace hyperserve {

// A launch is never interrupted, so it takes no more than 20 ms. A multiprocessor of an H100 makes
// 2e12 multiply-accumulates a second (bench/results), and has one row at a time; half of that
// leaves room for slower cards, which were not measured.
inline constexpr int64_t kLaunchRowMacsMax = 10'000'000'000;
inline constexpr int64_t kLaunchMacs = 1'000'000'000'000;  // 100 multiprocessors, 10 ms
// Fewer rows leave multiprocessors idle, and take no less time.
inline constexpr int64_t kLaunchImagesLeast = 128;
// The maps see so many rows at once, whatever their number: so the bits of a row do not depend on
// the others.
inline constexpr int64_t kMapRows = 64;

// The least atol of error control in tier fast. An evaluation of f is within 1e-3 (5e-4 measured),
// of which the error estimate of a step sees a tenth: below this bound the estimate of a field of
// the state's size would be mostly rounding, and the steps would be too short.
inline constexpr double kFastToleranceMin = 1e-4;
// The rows of an adaptive launch, in those that the device solves at the same time: each may take
// three times what `fashion` takes in the mean before the launch ends.
inline constexpr int64_t kAdaptiveRowsEach = 3;

// The field of a run's spec; of a learned solver, by its table of so many evaluations. Throws as
// LibTorch does.
using FindFusedConv =
    std::function<absl::StatusOr<std::shared_ptr<const FusedConv>>(int64_t evaluations)>;

// Admit refuses a segment whose rows take more multiply-accumulates than kLaunchRowMacsMax, or one
// of a tolerance below kFastToleranceMin, with kInvalidArgument. `stream` takes all work of the run
// and decides its device. Rows that fp16 cannot carry are solved again by the readable engine in
// tier exact, as if each were alone. Throws as LibTorch does. Precondition: the engine of the
// fields supports the spec (FusedConvs).
std::unique_ptr<Run> MakeConvRun(const BatchSpec& spec, StreamLease stream, FindFusedConv find);

}  // namespace hyperserve
