#include "core/engine/batch_rows.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/engine/device.h"
#include "core/io/philox.h"
#include "core/model/net/net.h"

namespace hyperserve {
namespace {

// Of one row, as the entry brings it.
const Shape& RowShape(const BatchSpec& spec) {
  return spec.entry == Entry::kInput ? spec.model->spec().input.shape : spec.model->state_shape();
}

bool TakesDtype(const BatchSpec& spec, Dtype dtype) {
  if (dtype == Dtype::kF32) return true;
  if (dtype == Dtype::kU8) return spec.entry == Entry::kInput;
  return dtype == Dtype::kF64 && (spec.entry == Entry::kState || spec.tier == Tier::kDouble);
}

absl::Status CheckData(const BatchSpec& spec, const Segment& segment) {
  const TensorView& data = segment.data;
  if (!TakesDtype(spec, data.dtype)) {
    return absl::InvalidArgumentError(
        absl::StrCat("rows of ", std::string(DtypeName(data.dtype)),
                     " are not taken here: wanted F32, U8 for a model's input, F64 for states and "
                     "in tier double"));
  }
  Shape wanted = RowShape(spec);
  wanted.insert(wanted.begin(), segment.rows);
  if (data.shape != wanted) {
    return absl::InvalidArgumentError(
        absl::StrCat("shape wanted ", ShapeText(wanted), ", found ", ShapeText(data.shape)));
  }
  const size_t bytes =
      static_cast<size_t>(ElementCount(wanted).value_or(0)) * DtypeSize(data.dtype);
  if (data.bytes.size() != bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("wanted ", bytes, " bytes of data, found ", data.bytes.size()));
  }
  return absl::OkStatus();
}

at::Tensor ApplyPerChannel(const at::Tensor& x, const std::vector<double>& values,
                           const at::Tensor& (*apply)(at::Tensor&, const at::Tensor&)) {
  if (values.empty()) return x;
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
  shape[1] = static_cast<int64_t>(values.size());
  at::Tensor result = x.to(at::kDouble, /*non_blocking=*/false, /*copy=*/true);
  return apply(result, at::tensor(values, at::kDouble).view(shape));
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

at::Tensor Noise(const Batch& batch, const Segment& segment, at::ScalarType dtype,
                 at::Device device) {
  const int64_t dimensions = batch.spec.model->state_elements();
  Shape shape = batch.spec.model->state_shape();
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

int64_t CountRows(const Batch& batch) {
  int64_t rows = 0;
  for (const Segment& segment : batch.segments) rows += segment.rows;
  return rows;
}

absl::Status CheckRows(const Batch& batch) {
  const BatchSpec& spec = batch.spec;
  if (spec.entry == Entry::kNoise && spec.model->spec().kind != ModelKind::kFlow) {
    return absl::InvalidArgumentError("a classifier does not start from noise");
  }
  for (size_t i = 0; i < batch.segments.size(); ++i) {
    const Segment& segment = batch.segments[i];
    const std::string where = absl::StrCat("segment ", i);
    if (segment.rows < 0) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": ", segment.rows, " rows"));
    }
    if (spec.entry == Entry::kNoise) continue;
    HS_RETURN_IF_ERROR(Annotate(CheckData(spec, segment), where));
  }
  if (CountRows(batch) == 0) return absl::InvalidArgumentError("a batch without rows");
  return absl::OkStatus();
}

at::Tensor ReadRows(const Batch& batch, at::ScalarType dtype, at::Device device) {
  std::vector<at::Tensor> parts;
  for (const Segment& segment : batch.segments) {
    if (segment.rows == 0) continue;
    if (batch.spec.entry == Entry::kNoise) {
      parts.push_back(Noise(batch, segment, dtype, device));
      continue;
    }
    at::Tensor rows = TensorFromView(segment.data);
    if (batch.spec.entry == Entry::kInput) {
      rows = Preprocessed(std::move(rows), batch.spec.model->spec().input);
    }
    parts.push_back(rows.to(device, dtype));
  }
  return parts.size() == 1 ? parts.front() : at::cat(parts, 0);
}

}  // namespace hyperserve
