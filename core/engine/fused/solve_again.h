// Rows that fp16 cannot carry, solved in fp32.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "absl/status/status.h"
#include "core/engine/batch_spec.h"
#include "core/engine/engine.h"
#include "core/engine/torch_scope.h"

namespace hyperserve {

// Solves these rows of the segment by the readable engine in tier exact and puts them into
// `result`, which holds all rows of the segment. A row's bits do not depend on the others: the nets
// see `bucket` rows, however many there are. Waits for the device; fails as Run::Advance does, and
// throws as LibTorch does. Precondition: the places ascend.
absl::Status SolveAgain(const BatchSpec& spec, const StreamLease& stream, const Segment& segment,
                        std::span<const int64_t> places, const std::function<bool()>& cancelled,
                        BatchResult& result, int64_t bucket = 1024);

}  // namespace hyperserve
