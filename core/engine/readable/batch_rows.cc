#include "core/engine/readable/batch_rows.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/engine/batch_spec.h"
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

absl::Status CheckCondition(const BatchSpec& spec, const Segment& segment) {
  const TensorView& condition = segment.condition;
  const Shape& features = spec.model->spec().condition;
  if (features.empty()) {
    if (condition.shape.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError("a condition for a model that has none");
  }
  Shape of_all = {1, features[0]}, of_each = {segment.rows, features[0]};
  if (!spec.knots.empty()) {
    for (Shape* shape : {&of_all, &of_each}) {
      shape->insert(shape->begin() + 1, std::ssize(spec.knots.depths));
    }
  }
  if (condition.shape != of_all && condition.shape != of_each) {
    return absl::InvalidArgumentError(absl::StrCat("condition: shape wanted ", ShapeText(of_each),
                                                   " or ", ShapeText(of_all), ", found ",
                                                   ShapeText(condition.shape)));
  }
  if (condition.dtype != Dtype::kF32 && condition.dtype != Dtype::kF64) {
    return absl::InvalidArgumentError(absl::StrCat("condition: dtype wanted F32 or F64, found ",
                                                   Absl(DtypeName(condition.dtype))));
  }
  return CheckBytes(condition);
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
  return ApplyPerChannel(
      x, input.deviation,
      [](at::Tensor& y, const at::Tensor& v) -> const at::Tensor& { return y.div_(v); });
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
  HS_RETURN_IF_ERROR(CheckCondition(spec, segment));
  HS_RETURN_IF_ERROR(CheckGuidance(spec, segment));
  return spec.entry == Entry::kNoise ? absl::OkStatus() : CheckData(spec, segment);
}

at::Tensor ReadConditions(const BatchSpec& spec, std::span<const Segment> segments,
                          at::ScalarType dtype, at::Device device) {
  if (spec.model->spec().condition.empty()) return {};
  std::vector<at::Tensor> parts;
  for (const Segment& segment : segments) {
    const at::Tensor condition = TensorFromView(segment.condition).to(device).to(dtype).flatten(1);
    parts.push_back(condition.expand({segment.rows, condition.size(1)}));
  }
  return at::cat(parts, 0);  // a copy, so that no row shares the memory of another
}

at::Tensor ReadGuidance(const BatchSpec& spec, std::span<const Segment> segments) {
  if (spec.guidance == 0) return {};
  std::vector<at::Tensor> parts;
  for (const Segment& segment : segments) {
    parts.push_back(TensorFromView(segment.guidance).expand({segment.rows, spec.guidance}));
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
