// The fused engine on images: whole fixed-step solves of fields of convolutions, one launch for a
// segment, tier fast. Every row is solved by the first Advance after its admission. The input and
// the output map are those of the readable engine.
#pragma once

#include <cstdint>
#include <memory>

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

// Admit refuses a segment whose rows take more multiply-accumulates than kLaunchRowMacsMax with
// kInvalidArgument. `stream` takes all work of the run and decides its device. Rows that fp16
// cannot carry are solved again by the readable engine in tier exact, as if each were alone. Throws
// as LibTorch does. Precondition: the engine of `conv` supports the spec (FusedConvs).
std::unique_ptr<Run> MakeConvRun(const BatchSpec& spec, StreamLease stream,
                                 std::shared_ptr<const FusedConv> conv);

}  // namespace hyperserve
