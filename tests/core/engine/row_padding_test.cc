// What RowMultiple asks of the number of rows is enough for every kind of layer, on the CPU.
#include "core/engine/readable/row_padding.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "core/io/tensor.h"
#include "core/model/layers/activations.h"
#include "core/model/layers/dense.h"
#include "core/model/layers/joins.h"
#include "core/model/layers/kind.h"
#include "core/model/layers/layer.h"
#include "core/model/net/bound_layer.h"
#include "core/model/net/net.h"
#include "core/model/spec/spec.h"
#include "tests/testing/random_layers.h"
#include "tests/testing/random_tensors.h"

namespace hyperserve {
namespace {

Dual Rows(const Dual& x, int64_t first, int64_t rows) {
  return {x.value.narrow(0, first, rows), x.tangents.narrow(1, first, rows)};
}

// Rows of a batch of 64 get the same bits alone, in small company, and beside other rows.
void ExpectAlone(const LayerList& layers, const Shape& row, at::ScalarType dtype) {
  at::set_num_threads(1);  // as engines do: with more, the matrix product of doubles splits by rows
  const Net net = Net::Make(layers, "net", fixture::RandomTensors(layers, dtype)).value();
  const RowPadding padding{.multiple = RowMultiple(layers, row)};
  const auto apply = [&](const Dual& x, const Dual& depth, const Dual& condition) {
    const int64_t rows = x.value.size(0), padded = padding.Rows(rows);
    return KeepRows(
        net.Apply(PadRows(x, padded), PadRows(depth, padded), PadRows(condition, padded)), rows);
  };
  const auto normals = [&](Shape shape, double scale) {
    shape.insert(shape.begin(), 64);
    const at::Tensor value = at::randn(shape, dtype) * scale;
    shape.insert(shape.begin(), 3);
    return Dual{value, at::randn(shape, dtype)};
  };
  const Dual x = normals(row, 2.0), depth = normals({}, 1.0);
  const Dual condition = normals({fixture::kConditionFeatures}, 1.0);
  const Dual among = apply(x, depth, condition);
  for (const int64_t rows : {1, 2, 3, 5, 17, 33, 64}) {
    for (const int64_t first : {int64_t{0}, 64 - rows}) {
      const Dual wanted = Rows(among, first, rows);
      Dual company = normals(row, 10.0), company_depth = normals({}, 1.0);
      Dual company_condition = normals({fixture::kConditionFeatures}, 1.0);
      Rows(company, 0, rows).value.copy_(Rows(x, first, rows).value);
      Rows(company, 0, rows).tangents.copy_(Rows(x, first, rows).tangents);
      Rows(company_depth, 0, rows).value.copy_(Rows(depth, first, rows).value);
      Rows(company_depth, 0, rows).tangents.copy_(Rows(depth, first, rows).tangents);
      Rows(company_condition, 0, rows).value.copy_(Rows(condition, first, rows).value);
      Rows(company_condition, 0, rows).tangents.copy_(Rows(condition, first, rows).tangents);
      for (const Dual& y :
           {apply(Rows(x, first, rows), Rows(depth, first, rows), Rows(condition, first, rows)),
            Rows(apply(company, company_depth, company_condition), 0, rows)}) {
        EXPECT_TRUE(at::equal(y.value, wanted.value))
            << dtype << ", " << rows << " rows from " << first;
        EXPECT_TRUE(at::equal(y.tangents, wanted.tangents))
            << dtype << ", " << rows << " rows from " << first;
      }
    }
  }
}

TEST(RowPaddingTest, ServesEveryKind) {
  for (const fixture::LayerExample& example : fixture::LayerExamples()) {
    SCOPED_TRACE(std::string(LayerName(example.layer)) + " of " + ShapeText(example.row));
    ExpectAlone({example.layer}, example.row, at::kFloat);
    ExpectAlone({example.layer}, example.row, at::kDouble);
  }
}

TEST(RowPaddingTest, ServesRandomNets) {
  for (const Shape& row : {Shape{2}, Shape{3, 6, 2}}) {
    for (uint64_t seed = 0; seed < 16; ++seed) {
      const LayerList layers = fixture::RandomLayers(row, seed);
      ModelSpec spec;
      spec.field = layers;
      SCOPED_TRACE(PrintModelSpec(spec));
      ExpectAlone(layers, row, at::kFloat);
      ExpectAlone(layers, row, at::kDouble);
    }
  }
}

TEST(RowPaddingTest, FollowsTheLayers) {
  const Layer softplus = {SoftplusLayer{}}, relu = {ReluLayer{}};
  EXPECT_EQ(RowMultiple({softplus}, {2}), 16);
  EXPECT_EQ(RowMultiple({softplus}, {32, 28, 28}), 1);
  EXPECT_EQ(RowMultiple({softplus}, {3, 5, 5}), 32);
  EXPECT_EQ(RowMultiple({relu}, {3, 5, 5}), 1);
  EXPECT_EQ(RowMultiple({{LinearLayer{.in = 4, .out = 4}}}, {4}), 32);
  EXPECT_EQ(RowMultiple({{AugmentLayer{.layers = {softplus}}}}, {8}), 4);
  EXPECT_EQ(RowMultiple({{ResidualLayer{.layers = {softplus}}}, relu}, {4}), 8);
  const RowPadding padding{.multiple = 32, .at_least = 64};
  EXPECT_EQ(padding.Rows(1), 64);
  EXPECT_EQ(padding.Rows(65), 96);
  EXPECT_EQ(Bucket(1), 1);
  EXPECT_EQ(Bucket(33), 64);
}

}  // namespace
}  // namespace hyperserve
