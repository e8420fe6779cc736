#include "core/engine/readable/batch_rows.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status.h"
#include "core/engine/batch_spec.h"
#include "core/engine/choose_engine.h"
#include "core/engine/device.h"
#include "core/io/philox.h"
#include "core/io/tensor.h"
#include "core/model/net/model.h"
#include "core/model/net/net.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/step_control.h"
#include "core/plan/step_grid.h"

namespace hyperserve {
namespace {

// The shape of one row of data.
const Shape& RowShape(const BatchSpec& spec) {
  return spec.entry == Entry::kInput ? spec.model->spec().input.shape : spec.model->state_shape();
}

// Precondition: the shape is one that the spec wants.
absl::Status CheckBytes(const TensorView& array) {
  const size_t bytes =
      static_cast<size_t>(ElementCount(array.shape).value_or(0)) * DtypeSize(array.dtype);
  if (array.bytes.size() == bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("wanted ", bytes, " bytes of data, found ", array.bytes.size()));
}

absl::Status CheckData(const BatchSpec& spec, const Segment& segment) {
  const TensorView& data = segment.data;
  if (data.dtype != spec.dtype) {
    return absl::InvalidArgumentError(absl::StrCat("dtype wanted ", Absl(DtypeName(spec.dtype)),
                                                   ", found ", Absl(DtypeName(data.dtype))));
  }
  Shape wanted = RowShape(spec);
  wanted.insert(wanted.begin(), segment.rows);
  if (data.shape != wanted) {
    return absl::InvalidArgumentError(
        absl::StrCat("shape wanted ", ShapeText(wanted), ", found ", ShapeText(data.shape)));
  }
  return CheckBytes(data);
}

// An array of floats of one of these shapes.
absl::Status CheckFloats(std::string_view name, const TensorView& array,
                         const std::vector<Shape>& wanted) {
  if (std::ranges::find(wanted, array.shape) == wanted.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        Absl(name), ": shape wanted ",
        absl::StrJoin(
            wanted, " or ",
            [](std::string* out, const Shape& shape) { absl::StrAppend(out, ShapeText(shape)); }),
        ", found ", ShapeText(array.shape)));
  }
  if (array.dtype != Dtype::kF32 && array.dtype != Dtype::kF64) {
    return absl::InvalidArgumentError(absl::StrCat(Absl(name), ": dtype wanted F32 or F64, found ",
                                                   Absl(DtypeName(array.dtype))));
  }
  return Annotate(CheckBytes(array), name);
}

// Of one row's condition, with knots its values at them.
Shape ConditionShape(const BatchSpec& spec) {
  Shape shape = spec.model->spec().condition;
  if (!spec.knots.empty()) shape.insert(shape.begin(), std::ssize(spec.knots.depths));
  return shape;
}

// Of the conditions of so many rows: one for each, or one for all.
std::vector<Shape> ConditionShapes(const BatchSpec& spec, int64_t rows) {
  Shape of_each = ConditionShape(spec);
  of_each.insert(of_each.begin(), rows);
  Shape of_all = of_each;
  of_all[0] = 1;
  return {std::move(of_each), std::move(of_all)};
}

absl::Status CheckCondition(const BatchSpec& spec, const Segment& segment) {
  const Shape& features = spec.model->spec().condition;
  if (features.empty()) {
    if (segment.condition.shape.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError("a condition for a model that has none");
  }
  return CheckFloats("condition", segment.condition, ConditionShapes(spec, segment.rows));
}

absl::Status CheckVectors(const BatchSpec& spec, const Segment& segment) {
  const bool pushes = spec.derivative == Derivative::kJvp;
  const bool pulls = spec.derivative == Derivative::kVjp && spec.log_density == LogDensity::kNone;
  if (pulls || (pushes && !segment.vector.shape.empty())) {
    Shape wanted = pushes ? RowShape(spec) : spec.model->state_shape();
    wanted.insert(wanted.begin(), segment.rows);
    HS_RETURN_IF_ERROR(CheckFloats("vector", segment.vector, {wanted}));
  } else if (!segment.vector.shape.empty()) {
    return absl::InvalidArgumentError("a vector for rows without a product");
  }
  if (segment.condition_vector.shape.empty()) return absl::OkStatus();
  if (!pushes || spec.model->spec().condition.empty()) {
    return absl::InvalidArgumentError("a tangent of a condition that is not asked for");
  }
  return CheckFloats("condition_vector", segment.condition_vector,
                     ConditionShapes(spec, segment.rows));
}

// One vector for each row, side by side; zeros where it is empty.
at::Tensor JoinVectors(std::span<const Segment> segments, TensorView Segment::*vector,
                       const Shape& row_shape, const at::TensorOptions& options) {
  std::vector<at::Tensor> parts;
  for (const Segment& segment : segments) {
    Shape shape = row_shape;
    shape.insert(shape.begin(), segment.rows);
    parts.push_back((segment.*vector).shape.empty()
                        ? at::zeros(shape, options)
                        : TensorFromView(segment.*vector).to(options).expand(shape));
  }
  return at::cat(parts, 0);  // a copy, so that no row shares the memory of another
}

// Conditions or their tangents, as ReadConditions returns them.
at::Tensor JoinConditions(const BatchSpec& spec, std::span<const Segment> segments,
                          TensorView Segment::*conditions, at::ScalarType dtype,
                          at::Device device) {
  if (spec.model->spec().condition.empty()) return {};
  return JoinVectors(segments, conditions, ConditionShape(spec),
                     at::TensorOptions(device).dtype(dtype))
      .flatten(1);
}

absl::Status CheckGuidance(const BatchSpec& spec, const Segment& segment) {
  const TensorView& guidance = segment.guidance;
  if (spec.guidance == 0) {
    if (guidance.shape.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError("guidance for a batch without guidance");
  }
  const auto* fixed = std::get_if<FixedSteps>(&segment.control);
  if (spec.guidance > 1 && fixed->steps != spec.guidance) {
    return absl::InvalidArgumentError(
        absl::StrCat("guidance of ", spec.guidance, " steps for ", fixed->steps, " steps"));
  }
  const Shape of_all = {1, spec.guidance}, of_each = {segment.rows, spec.guidance};
  if ((guidance.shape == of_all || guidance.shape == of_each) && guidance.dtype == Dtype::kF64) {
    return CheckBytes(guidance);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("guidance: wanted F64 ", ShapeText(of_each), " or ", ShapeText(of_all),
                   ", found ", Absl(DtypeName(guidance.dtype)), " ", ShapeText(guidance.shape)));
}

at::Tensor ApplyPerChannel(const at::Tensor& x, const std::vector<double>& values,
                           const at::Tensor& (*apply)(at::Tensor&, const at::Tensor&)) {
  if (values.empty()) return x;
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
  shape[1] = static_cast<int64_t>(values.size());
  at::Tensor result = x.to(at::kDouble, /*non_blocking=*/false, /*copy=*/true);
  const at::Tensor each = at::tensor(values, at::kDouble).view(shape);
  return apply(result, each.to(x.device(), /*non_blocking=*/true));
}

at::Tensor Preprocessed(at::Tensor x, const InputSpec& input) {
  if (x.scalar_type() == at::kByte) x = x.to(at::kDouble) / 255.0;
  x = ApplyPerChannel(x, input.mean, [](at::Tensor& y, const at::Tensor& v) -> const at::Tensor& {
    return y.sub_(v);
  });
  return ScaledAsInputs(x, input);
}

at::Tensor Noise(const Model& model, const Segment& segment, at::ScalarType dtype,
                 at::Device device) {
  const int64_t dimensions = model.state_elements();
  Shape shape = model.state_shape();
  shape.insert(shape.begin(), segment.rows);
  if (device.is_cuda()) {
    at::Tensor rows = at::empty({segment.rows, dimensions}, at::TensorOptions(device).dtype(dtype));
    CudaNormals(segment.seed, segment.first_row, rows);
    return rows.view(shape);
  }
  at::Tensor rows = at::empty(shape, at::kDouble);
  PhiloxNormals(segment.seed, segment.first_row, segment.rows, dimensions,
                {rows.data_ptr<double>(), static_cast<size_t>(rows.numel())});
  return rows.to(dtype);
}

}  // namespace

absl::Status CheckSegment(const BatchSpec& spec, const Segment& segment) {
  if (segment.rows < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a segment of ", segment.rows, " rows; it must have at least 1"));
  }
  if (SteppingOf(segment.control) != spec.stepping) {
    return absl::InvalidArgumentError(spec.stepping == Stepping::kFixed
                                          ? "tolerances for a batch of fixed steps"
                                          : "a number of steps for a batch under error control");
  }
  if (spec.method.method == Method::kLearned) {
    const int64_t evaluations = std::get<FixedSteps>(segment.control).steps;
    const Hypersolver::TableFacts* table = spec.correction->table(evaluations);
    if (table == nullptr || (spec.want_distance && !table->spec->distance)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the learned solver has no ", table == nullptr ? "table" : "distance readout", " of ",
          evaluations, " evaluations"));
    }
  } else {
    HS_RETURN_IF_ERROR(ValidateControl(segment.control));
    if (const auto* fixed = std::get_if<FixedSteps>(&segment.control)) {
      HS_RETURN_IF_ERROR(ValidateStepGrid(spec.grid, fixed->steps));
    }
  }
  if (spec.derivative == Derivative::kVjp && RunsFromTable(spec.method.method) &&
      std::get<FixedSteps>(segment.control).steps > kRecordedEvaluationsMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a table of ", std::get<FixedSteps>(segment.control).steps,
        " evaluations; those that are walked back have at most ", kRecordedEvaluationsMax));
  }
  HS_RETURN_IF_ERROR(CheckCondition(spec, segment));
  HS_RETURN_IF_ERROR(CheckGuidance(spec, segment));
  HS_RETURN_IF_ERROR(CheckVectors(spec, segment));
  return spec.entry == Entry::kNoise ? absl::OkStatus() : CheckData(spec, segment);
}

at::Tensor ReadConditions(const BatchSpec& spec, std::span<const Segment> segments,
                          at::ScalarType dtype, at::Device device) {
  return JoinConditions(spec, segments, &Segment::condition, dtype, device);
}

at::Tensor ReadVectors(const BatchSpec& spec, std::span<const Segment> segments,
                       at::ScalarType dtype, at::Device device) {
  const bool pushes = spec.derivative == Derivative::kJvp;
  const at::TensorOptions options(device);
  const Shape& shape = pushes ? RowShape(spec) : spec.model->state_shape();
  if (!pushes || spec.entry != Entry::kInput) {
    return JoinVectors(segments, &Segment::vector, shape, options.dtype(dtype));
  }
  return ScaledAsInputs(JoinVectors(segments, &Segment::vector, shape, options.dtype(at::kDouble)),
                        spec.model->spec().input)
      .to(dtype);
}

at::Tensor ReadConditionVectors(const BatchSpec& spec, std::span<const Segment> segments,
                                at::ScalarType dtype, at::Device device) {
  return JoinConditions(spec, segments, &Segment::condition_vector, dtype, device);
}

at::Tensor ScaledAsInputs(const at::Tensor& rows, const InputSpec& input) {
  return ApplyPerChannel(
      rows, input.deviation,
      [](at::Tensor& y, const at::Tensor& v) -> const at::Tensor& { return y.div_(v); });
}

at::Tensor ReadGuidance(const BatchSpec& spec, std::span<const Segment> segments) {
  if (spec.guidance == 0) return {};
  std::vector<at::Tensor> parts;
  for (const Segment& segment : segments) {
    parts.push_back(TensorFromView(segment.guidance).expand({segment.rows, spec.guidance}));
  }
  return at::cat(parts, 0);
}

at::Tensor ReadProbes(const BatchSpec& spec, std::span<const Segment> segments,
                      at::ScalarType dtype, at::Device device) {
  if (spec.probes == 0) return {};
  const int64_t dimensions = spec.model->state_elements();
  std::vector<at::Tensor> parts;
  for (const Segment& segment : segments) {
    const at::Tensor signs = at::empty({spec.probes, segment.rows, dimensions}, at::kFloat);
    for (int64_t probe = 0; probe < spec.probes; ++probe) {
      float* const begin = signs.select(0, probe).data_ptr<float>();
      PhiloxSigns(segment.probe_seed, segment.first_row, segment.rows, dimensions, probe,
                  {begin, static_cast<size_t>(segment.rows * dimensions)});
    }
    Shape shape = spec.model->state_shape();
    shape.insert(shape.begin(), {segment.rows, spec.probes});
    parts.push_back(signs.transpose(0, 1).reshape(shape).to(device, dtype));
  }
  return at::cat(parts, 0);
}

at::Tensor ReadRows(const BatchSpec& spec, std::span<const Segment> segments, at::ScalarType dtype,
                    at::Device device) {
  std::vector<at::Tensor> parts;
  for (const Segment& segment : segments) {
    if (spec.entry == Entry::kNoise) {
      parts.push_back(Noise(*spec.model, segment, dtype, device));
      continue;
    }
    at::Tensor rows = TensorFromView(segment.data).to(device, /*non_blocking=*/true);
    if (spec.entry == Entry::kInput) {
      rows = Preprocessed(std::move(rows), spec.model->spec().input);
    }
    parts.push_back(rows.to(dtype));
  }
  return parts.size() == 1 ? parts.front() : at::cat(parts, 0);
}

}  // namespace hyperserve
