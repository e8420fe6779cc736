#include "core/engine/readable/row_padding.h"

#include <bit>
#include <numeric>

#include "core/io/tensor.h"
#include "core/model/layers/kind.h"
#include "core/model/net/bound_layer.h"

namespace hyperserve {
namespace {

// The most numbers that LibTorch's vectorised loops take at once: two vectors of sixteen floats.
constexpr int64_t kVectorisedNumbers = 32;
// From this number of rows on, MKL's matrix product takes one kernel for all sizes.
constexpr int64_t kMatrixRows = 32;

at::Tensor Padded(const at::Tensor& x, const int64_t dim, const int64_t rows) {
  if (!x.defined() || x.size(dim) == rows) return x;
  std::vector<int64_t> shape(x.sizes().begin(), x.sizes().end());
  shape[static_cast<size_t>(dim)] = rows - x.size(dim);
  return at::cat({x, at::zeros(shape, x.options())}, dim);
}

at::Tensor Kept(const at::Tensor& y, const int64_t dim, const int64_t rows) {
  return y.defined() && y.size(dim) != rows ? y.narrow(dim, 0, rows) : y;
}

// For rows of `elements` numbers.
int64_t MultipleFor(const RowRule rule, const int64_t elements) {
  switch (rule) {
    case RowRule::kAny:
      return 1;
    case RowRule::kVectors:
      return kVectorisedNumbers / std::gcd(elements, kVectorisedNumbers);
    case RowRule::kMatrix:
      break;
  }
  return kMatrixRows;
}

}  // namespace

int64_t RowMultiple(const LayerList& layers, const Shape& input) {
  int64_t multiple = 1;  // every rule gives a power of two, so the largest serves all
  Shape shape = input;
  for (const Layer& layer : layers) {
    multiple = std::max(multiple, MultipleFor(RowRuleOf(layer), *ElementCount(shape)));
    for (const InnerList& inner : InnerLists(layer)) {
      multiple = std::max(multiple, RowMultiple(inner.layers, InnerInput(layer, shape)));
    }
    shape = OutputShape(layer, shape).value();
  }
  return multiple;
}

int64_t Bucket(const int64_t rows) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(rows, 1))));
}

Dual PadRows(const Dual& x, const int64_t rows) {
  return {Padded(x.value, 0, rows), Padded(x.tangents, 1, rows)};
}

Dual KeepRows(const Dual& y, const int64_t rows) {
  return {Kept(y.value, 0, rows), Kept(y.tangents, 1, rows)};
}

}  // namespace hyperserve
