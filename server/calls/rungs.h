// What happens to the rows of an automatic plan per row between two of its plans. Pure; any thread
// may call.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/engine/engine.h"
#include "server/batching/work.h"

namespace hyperserve {

// The bound of each row's error: factor times its distance, NaN in rows that failed. NaN in all
// rows where there is no factor.
std::vector<double> BoundsOf(const BatchResult& rows, std::optional<double> factor);

// The rows, ascending, whose bound is not known to be at most the target.
std::vector<int64_t> RowsThatGoOn(const std::vector<double>& bounds, double target);

// The work of some rows of `all`: a copy of their data. Noise becomes the states that it stands
// for, as F32 or, in tier double, F64. Bytes and MACs are in proportion. Precondition: the rows are
// there, at least one.
Work WorkOfRows(const Work& all, const std::vector<int64_t>& rows);

// Puts the results of a later plan in the places of `rows`, one for each row of `part`. Their costs
// are added to those that stand there. Engine and device become those of `part`. Precondition: both
// hold the same kinds of results.
void PutRows(const WorkResult& part, const std::vector<int64_t>& rows, WorkResult& all);

}  // namespace hyperserve
