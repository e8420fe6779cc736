#include "server/calls/rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "core/base/shortest_text.h"
#include "core/base/status.h"

namespace hyperserve {
namespace {

absl::Status CheckDtype(const AskedRows& asked, const RowsRule& rule) {
  if (asked.ok() && (asked->dtype == Dtype::kF32 || asked->dtype == Dtype::kF16 ||
                     (asked->dtype == Dtype::kF64 && rule.tier == Tier::kDouble) ||
                     (asked->dtype == Dtype::kU8 && rule.takes_u8))) {
    return absl::OkStatus();
  }
  const std::string found =
      asked.ok() ? absl::StrCat("dtype ", Absl(DtypeName(asked->dtype)), " is not taken")
                 : std::string(asked.status().message());
  return absl::InvalidArgumentError(absl::StrCat(
      Absl(rule.field), ": ", found, "; send F32 or F16",
      rule.takes_u8 ? ", U8 (divided by 255 here)" : "",
      rule.tier == Tier::kDouble ? " or F64" : " (F64 only with a plan in tier double)"));
}

absl::Status CheckShape(const TensorView& rows, const RowsRule& rule) {
  const auto error = [&](const std::string& words) {
    return absl::InvalidArgumentError(absl::StrCat(Absl(rule.field), ": ", words));
  };
  const Shape& shape = rows.shape;
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
  const size_t element_size = DtypeSize(rows.dtype);
  if (!elements || static_cast<size_t>(*elements) * element_size != rows.bytes.size()) {
    return error(absl::StrCat("data holds ", rows.bytes.size(), " bytes; ",
                              Absl(DtypeName(rows.dtype)), " ", ShapeText(shape), " needs ",
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

absl::StatusOr<HostTensor> TakeRows(const AskedRows& asked, const RowsRule& rule) {
  HS_RETURN_IF_ERROR(CheckDtype(asked, rule));
  HS_RETURN_IF_ERROR(CheckShape(*asked, rule));
  HostTensor rows =
      asked->dtype == Dtype::kF16 ? ConvertedTo(*asked, Dtype::kF32) : HostTensor::CopyOf(*asked);
  const int64_t row_elements = rows.elements() / rows.shape[0];
  if (rows.dtype == Dtype::kF32) {
    HS_RETURN_IF_ERROR(CheckNumbers(std::as_const(rows).as<float>(), row_elements, rule));
  } else if (rows.dtype == Dtype::kF64) {
    HS_RETURN_IF_ERROR(CheckNumbers(std::as_const(rows).as<double>(), row_elements, rule));
  }
  return rows;
}

int64_t RowsAsked(const AskedRows& asked) {
  return asked.ok() && !asked->shape.empty() ? std::max<int64_t>(asked->shape[0], 1) : 1;
}

HostTensor TensorOf(std::span<const double> numbers, const Shape& shape, Dtype dtype) {
  HostTensor tensor = HostTensor::Zeros(dtype, shape);
  if (dtype == Dtype::kF32) {
    std::transform(numbers.begin(), numbers.end(), tensor.as<float>().begin(),
                   [](double x) { return static_cast<float>(x); });
  } else {
    std::copy(numbers.begin(), numbers.end(), tensor.as<double>().begin());
  }
  return tensor;
}

std::vector<double> RowAsDoubles(const HostTensor& tensor, int64_t row, int64_t width) {
  const auto pick = [&](auto numbers) {
    const auto begin = numbers.begin() + row * width;
    return std::vector<double>(begin, begin + width);
  };
  return tensor.dtype == Dtype::kF64 ? pick(tensor.as<double>()) : pick(tensor.as<float>());
}

void MarkOverflownHeads(const HostTensor& outputs, std::vector<RowStatus>& status) {
  const auto count = static_cast<int64_t>(status.size());
  const int64_t width = outputs.elements() / count;
  for (int64_t row = 0; row < count; ++row) {
    const std::vector<double> numbers = RowAsDoubles(outputs, row, width);
    const bool finite =
        std::all_of(numbers.begin(), numbers.end(), [](double x) { return std::isfinite(x); });
    if (!finite && status[static_cast<size_t>(row)] == RowStatus::kConverged) {
      status[static_cast<size_t>(row)] = RowStatus::kNonFinite;
    }
  }
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
