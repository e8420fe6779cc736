// The readable twin of the fused flow kernel (flow.h): double, one row after the other. Pure; any
// thread. For tests: slow.
#pragma once

#include <span>
#include <vector>

#include "core/kernels/flow/flow_model.h"

namespace hyperserve::kernels {

// The activation of one number; `slope` matters to a rectifier alone.
double TwinActivation(FlowActivation activation, double x, double slope);

// f(s, z) of one row.
std::vector<double> TwinField(const FlowModel& model, double s, std::span<const double> z);

// z(s1) of one row, whatever the plan's density. Preconditions: the layers fit each other;
// hypersolved only with a correction.
std::vector<double> TwinSolve(const FlowModel& model, const FlowPlan& plan,
                              std::span<const double> z0);

// What FlowRows::log_density says of one row. Preconditions as TwinSolve; the plan has a density,
// and the model at most kFlowTangents dimensions.
double TwinLogDensity(const FlowModel& model, const FlowPlan& plan, std::span<const double> z0);

}  // namespace hyperserve::kernels
