#include "training/data/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "core/engine/batch_spec.h"
#include "core/engine/engine.h"
#include "core/io/file.h"
#include "core/io/tensor.h"
#include "core/model/layers/dense.h"
#include "core/model/layers/images.h"
#include "core/model/layers/layer.h"
#include "core/model/spec/spec.h"
#include "tests/testing/idx_fixture.h"
#include "tests/testing/model_fixture.h"
#include "training/data/density.h"
#include "training/data/recipe.h"

namespace hyperserve {
namespace {

using ::testing::HasSubstr;

const Shape kInput = {1, 2, 2};

Recipe ImageRecipe(int validation_rows) {
  Recipe recipe;
  recipe.set_seed(3);
  recipe.mutable_data()->mutable_idx()->set_validation_rows(validation_rows);
  return recipe;
}

ModelSpec ImageModel() {
  ModelSpec spec;
  spec.input.shape = kInput;
  spec.stem = {Layer{.kind = FlattenLayer{}}};
  spec.head = {Layer{.kind = LinearLayer{.in = 4, .out = 10}}};
  return spec;
}

std::set<uint8_t> FirstPixels(const SolveInputs& inputs) {
  std::set<uint8_t> pixels;
  const auto bytes = inputs.rows.as<uint8_t>();
  for (size_t i = 0; i < bytes.size(); i += 4) pixels.insert(bytes[i]);
  return pixels;
}

TEST(DatasetTest, ReadsImagesWithTheirLabels) {
  const TemporaryFolder folder;
  fixture::WriteIdxData(folder.path(), {.training_rows = 20, .test_rows = 5, .side = 2});
  const auto images = LoadImages(folder.path(), IdxPart::kTraining, kInput, 10);
  ASSERT_TRUE(images.ok()) << images.status();
  EXPECT_EQ(images->images.shape, (Shape{20, 1, 2, 2}));
  EXPECT_EQ(images->labels[13], 3);
  EXPECT_EQ(images->images.as<uint8_t>()[4 * 13], 13);
}

TEST(DatasetTest, SaysWhatIsMissingOrDoesNotFit) {
  const TemporaryFolder folder;
  const auto missing = LoadImages(folder.path(), IdxPart::kTest, kInput, 10);
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("t10k-images-idx3-ubyte.gz"));
  fixture::WriteIdxData(folder.path(), {.training_rows = 20, .test_rows = 5, .side = 2});
  EXPECT_EQ(LoadImages(folder.path(), IdxPart::kTest, {1, 3, 3}, 10).status().code(),
            absl::StatusCode::kInvalidArgument);
  const auto classes = LoadImages(folder.path(), IdxPart::kTraining, kInput, 5);
  EXPECT_THAT(std::string(classes.status().message()), HasSubstr("label 9"));
}

TEST(InputSourceTest, ImageSetsShareNoRow) {
  const TemporaryFolder folder;
  fixture::WriteIdxData(folder.path(), {.training_rows = 200, .test_rows = 50, .side = 2});
  const auto source =
      InputSource::Make(ImageRecipe(40), ImageModel(), Direction::kForward, folder.path());
  ASSERT_TRUE(source.ok()) << source.status();
  for (const uint8_t pixel : FirstPixels(source->Training(0, 500))) EXPECT_LT(pixel, 160);
  for (const uint8_t pixel : FirstPixels(*source->Validation(40))) {
    EXPECT_GE(pixel, 160);
    EXPECT_LT(pixel, 200);
  }
  for (const uint8_t pixel : FirstPixels(*source->HeldOut(50))) EXPECT_GE(pixel, 200);
  EXPECT_EQ(source->Training(3, 8).rows.bytes, source->Training(3, 8).rows.bytes);
  EXPECT_NE(source->Training(3, 8).rows.bytes, source->Training(4, 8).rows.bytes);
  EXPECT_EQ(source->Validation(41).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(InputSourceTest, FlowsStartFromNoiseOrFromData) {
  Recipe recipe;
  recipe.set_seed(3);
  recipe.mutable_data()->set_density("rings");
  ModelSpec spec{.kind = ModelKind::kFlow, .direction = Direction::kDataToNoise};
  spec.input.shape = {2};
  const auto noise = InputSource::Make(recipe, spec, Direction::kNoiseToData, "");
  const auto data = InputSource::Make(recipe, spec, Direction::kDataToNoise, "");
  ASSERT_TRUE(noise.ok() && data.ok());
  const std::vector<float> drawn = Density::Named("rings")->Draw(3, 0, 32);
  const SolveInputs rows = data->Training(0, 32);
  EXPECT_EQ(std::vector<float>(rows.rows.as<float>().begin(), rows.rows.as<float>().end()), drawn);
  EXPECT_EQ(rows.entry, Entry::kState);
  double squares = 0;
  const SolveInputs many = noise->Training(0, 5000);
  for (const float value : many.rows.as<float>()) squares += value * value;
  EXPECT_NEAR(squares / 10000, 1.0, 0.07);
  EXPECT_NE(noise->Training(0, 8).rows.bytes, noise->Validation(8)->rows.bytes);
  EXPECT_NE(noise->HeldOut(8)->rows.bytes, noise->Validation(8)->rows.bytes);
}

}  // namespace
}  // namespace hyperserve
