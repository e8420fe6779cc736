// A log-density whose solve is another than that of the state. The density of a step map is
// computed in double, and on a GPU densities have no captured steps and no fused error control; so
// a state that came with its density would differ in its last bits, and under error control in
// more, from the same row's state without it. Here each has a run of its own: the state is that of
// a spec without the density. The run is used as any other: by one thread at a time.
#pragma once

#include <memory>

#include "core/engine/batch_spec.h"
#include "core/engine/engine.h"

namespace hyperserve {

// True where the spec wants both and one run would not give the bits that the state has alone:
// for step maps in tier exact, and for every density outside the fused engine on a GPU.
bool SolvesStateApart(const BatchSpec& spec, bool on_gpu);

BatchSpec StateAlone(BatchSpec spec);    // without its density
BatchSpec DensityAlone(BatchSpec spec);  // without its state and what else is wanted

// A run of a spec that solves its state apart, of runs of the two. It has the room of the smaller,
// and advances both by the same number of evaluations. Status, evaluations and all but the
// log-densities are those of `state`; macs are those of both. A row whose density fails has the
// status of that.
std::unique_ptr<Run> PairRuns(std::unique_ptr<Run> state, std::unique_ptr<Run> density);

}  // namespace hyperserve
