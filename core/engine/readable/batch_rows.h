// Turns segments into one tensor of rows: checks, preprocessing, noise. Keeps no state, so any
// thread may call, within its own scope of LibTorch (torch_scope.h).
#pragma once

#include <ATen/ATen.h>

#include <span>

#include "absl/status/status.h"
#include "core/engine/batch_spec.h"
#include "core/engine/engine.h"
#include "core/model/spec/spec.h"

namespace hyperserve {

// Checks the number of rows, the control, and dtype, shape and bytes of data, condition, guidance
// and vectors against the spec. kInvalidArgument says what was wanted and what was found.
absl::Status CheckSegment(const BatchSpec& spec, const Segment& segment);

// All rows in order, [rows, ...] on `device`: model inputs after preprocessing for kInput, else
// states. Preprocessing works in double before the cast to `dtype`: U8 is divided by 255, then
// (x - mean) / deviation for each channel. The data is copied. Throws as LibTorch does.
// Preconditions: at least one segment, and CheckSegment(spec, segment).ok() for each.
at::Tensor ReadRows(const BatchSpec& spec, std::span<const Segment> segments, at::ScalarType dtype,
                    at::Device device);

// The condition of each row, [rows, features] or [rows, knots * features] on `device`; undefined
// where the model has none. The preconditions are those of ReadRows.
at::Tensor ReadConditions(const BatchSpec& spec, std::span<const Segment> segments,
                          at::ScalarType dtype, at::Device device);

// The weights of each row, F64 [rows, guidance] on the CPU; undefined where the spec has none.
at::Tensor ReadGuidance(const BatchSpec& spec, std::span<const Segment> segments);
// The probes of each row, [rows, probes, state...] on `device`; undefined where the spec has none.
at::Tensor ReadProbes(const BatchSpec& spec, std::span<const Segment> segments,
                      at::ScalarType dtype, at::Device device);
// The vectors of a derivative, zeros where a segment has none: kVjp [rows, state...], kJvp the
// tangents of what ReadRows returns, [rows, ...]. The preconditions are those of ReadRows, and the
// spec has a derivative.
at::Tensor ReadVectors(const BatchSpec& spec, std::span<const Segment> segments,
                       at::ScalarType dtype, at::Device device);
// kJvp: the tangents of what ReadConditions returns, likewise.
at::Tensor ReadConditionVectors(const BatchSpec& spec, std::span<const Segment> segments,
                                at::ScalarType dtype, at::Device device);

// The preprocessing of model inputs is affine; this is its linear part, which is its own transpose.
// Takes tangents to tangents and cotangents to cotangents, [rows, ...].
at::Tensor ScaledAsInputs(const at::Tensor& rows, const InputSpec& input);

}  // namespace hyperserve
