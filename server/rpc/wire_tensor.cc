#include "server/rpc/wire_tensor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "absl/strings/strip.h"
#include "core/base/shortest_text.h"
#include "core/base/status.h"

namespace hyperserve {
namespace {

constexpr char kPrefix[] = "DTYPE_";  // of the names in the wire's enum

std::optional<Dtype> DtypeFromWire(v1::Dtype dtype) {
  const absl::string_view name = absl::StripPrefix(v1::Dtype_Name(dtype), kPrefix);
  return DtypeFromName({name.data(), name.size()});
}

absl::Status CheckDtype(v1::Dtype wire, const RowsRule& rule) {
  const std::optional<Dtype> dtype = DtypeFromWire(wire);
  if (dtype == Dtype::kF32 || (dtype == Dtype::kF64 && rule.tier == Tier::kDouble) ||
      (dtype == Dtype::kU8 && rule.takes_u8)) {
    return absl::OkStatus();
  }
  std::string found = absl::StrCat("dtype: ", static_cast<int>(wire), " is unknown");
  if (wire == v1::DTYPE_UNSPECIFIED) found = "dtype is not specified";
  if (dtype) found = absl::StrCat("dtype ", Absl(DtypeName(*dtype)), " is not taken");
  return absl::InvalidArgumentError(absl::StrCat(
      Absl(rule.field), ": ", found, "; send F32",
      rule.takes_u8 ? ", U8 (divided by 255 here)" : "",
      rule.tier == Tier::kDouble ? " or F64" : " (F64 only with a plan in tier double)"));
}

absl::Status CheckShape(const v1::Tensor& wire, const RowsRule& rule, const Shape& shape) {
  const auto error = [&](const std::string& words) {
    return absl::InvalidArgumentError(absl::StrCat(Absl(rule.field), ": ", words));
  };
  const std::string wanted = absl::StrCat("[rows, ", ShapeText(rule.row_shape).substr(1));
  if (shape.size() != rule.row_shape.size() + 1 ||
      !std::equal(rule.row_shape.begin(), rule.row_shape.end(), shape.begin() + 1)) {
    return error(absl::StrCat("shape ", ShapeText(shape), " found, ", wanted, " wanted"));
  }
  if (shape[0] < 1) return error(absl::StrCat(shape[0], " rows; send at least one"));
  if (shape[0] > rule.rows_max) {
    return error(absl::StrCat(shape[0], " rows, more than request_rows_max = ", rule.rows_max,
                              "; send them in several requests"));
  }
  const std::optional<int64_t> elements = ElementCount(shape);
  const size_t element_size = DtypeSize(*DtypeFromWire(wire.dtype()));
  if (!elements || static_cast<size_t>(*elements) * element_size != wire.data().size()) {
    return error(absl::StrCat("data holds ", wire.data().size(), " bytes; ",
                              Absl(DtypeName(*DtypeFromWire(wire.dtype()))), " ", ShapeText(shape),
                              " needs ",
                              elements.value_or(-1) * static_cast<int64_t>(element_size)));
  }
  return absl::OkStatus();
}

template <class T>
absl::Status CheckNumbers(std::span<const T> numbers, int64_t row_elements, const RowsRule& rule) {
  for (size_t i = 0; i < numbers.size(); ++i) {
    const bool fits = std::isfinite(numbers[i]) &&
                      (!rule.unit_range || (numbers[i] >= T{0} && numbers[i] <= T{1}));
    if (fits) continue;
    const auto at = static_cast<int64_t>(i);
    return absl::InvalidArgumentError(
        absl::StrCat(Absl(rule.field), ": row ", at / row_elements, ", element ", at % row_elements,
                     " is ", ShortestText(numbers[i]), "; ",
                     rule.unit_range ? "numbers within [0, 1]" : "finite numbers", " wanted"));
  }
  return absl::OkStatus();
}

template <class T>
void BlankRows(std::span<const RowStatus> status, std::span<T> numbers) {
  const size_t width = numbers.size() / status.size();
  for (size_t row = 0; row < status.size(); ++row) {
    if (status[row] == RowStatus::kConverged) continue;
    std::fill_n(numbers.begin() + static_cast<ptrdiff_t>(row * width), width,
                std::numeric_limits<T>::quiet_NaN());
  }
}

}  // namespace

absl::StatusOr<HostTensor> RowsFromWire(const v1::Tensor& wire, const RowsRule& rule) {
  HS_RETURN_IF_ERROR(CheckDtype(wire.dtype(), rule));
  HostTensor tensor{.dtype = *DtypeFromWire(wire.dtype()),
                    .shape = {wire.shape().begin(), wire.shape().end()},
                    .bytes = {}};
  HS_RETURN_IF_ERROR(CheckShape(wire, rule, tensor.shape));
  tensor.bytes.resize(wire.data().size());
  std::memcpy(tensor.bytes.data(), wire.data().data(), wire.data().size());
  const int64_t row_elements = tensor.elements() / tensor.shape[0];
  if (tensor.dtype == Dtype::kF32) {
    HS_RETURN_IF_ERROR(CheckNumbers(std::as_const(tensor).as<float>(), row_elements, rule));
  } else if (tensor.dtype == Dtype::kF64) {
    HS_RETURN_IF_ERROR(CheckNumbers(std::as_const(tensor).as<double>(), row_elements, rule));
  }
  return tensor;
}

v1::Dtype DtypeToWire(Dtype dtype) {
  v1::Dtype wire = v1::DTYPE_UNSPECIFIED;
  v1::Dtype_Parse(absl::StrCat(kPrefix, Absl(DtypeName(dtype))), &wire);
  return wire;
}

void TensorToWire(const HostTensor& tensor, v1::Tensor* wire) {
  wire->set_dtype(DtypeToWire(tensor.dtype));
  wire->mutable_shape()->Assign(tensor.shape.begin(), tensor.shape.end());
  wire->set_data(tensor.bytes.data(), tensor.bytes.size());
}

void NumbersToWire(std::span<const double> numbers, const Shape& shape, Dtype dtype,
                   v1::Tensor* wire) {
  HostTensor tensor = HostTensor::Zeros(dtype, shape);
  if (dtype == Dtype::kF32) {
    std::transform(numbers.begin(), numbers.end(), tensor.as<float>().begin(),
                   [](double x) { return static_cast<float>(x); });
  } else {
    std::copy(numbers.begin(), numbers.end(), tensor.as<double>().begin());
  }
  TensorToWire(tensor, wire);
}

void BlankFailedRows(std::span<const RowStatus> status, HostTensor& tensor) {
  if (tensor.bytes.empty()) return;
  if (tensor.dtype == Dtype::kF32) {
    BlankRows(status, tensor.as<float>());
  } else {
    BlankRows(status, tensor.as<double>());
  }
}

}  // namespace hyperserve
