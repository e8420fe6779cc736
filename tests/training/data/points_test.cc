// Rows of files: a classifier's with and without labels, what is refused, what tells files apart.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>

#include "core/engine/batch_spec.h"
#include "core/io/file.h"
#include "core/io/safetensors.h"
#include "core/io/tensor.h"
#include "core/model/layers/dense.h"
#include "core/model/layers/images.h"
#include "core/model/layers/layer.h"
#include "core/model/spec/spec.h"
#include "tests/testing/model_fixture.h"
#include "tests/training/data/image_model.h"
#include "training/data/dataset.h"
#include "training/data/image_files.h"
#include "training/data/recipe.h"
#include "training/data/recipe.pb.h"

namespace hyperserve {
namespace {

using ::testing::HasSubstr;

void SetParts(training::Points& parts) {
  parts.set_validation_rows(100);
  parts.set_held_out_rows(50);
}

// Rows of a classifier in one file; label and pixels tell the row.
std::string WriteLabelledRows(const TemporaryFolder& folder, bool with_labels) {
  HostTensor x = HostTensor::Zeros(Dtype::kU8, {250, 1, 2, 2});
  HostTensor y = HostTensor::Zeros(Dtype::kI64, {250});
  for (int row = 0; row < 250; ++row) {
    for (int i = 0; i < 4; ++i) x.as<uint8_t>()[4 * row + i] = static_cast<uint8_t>(row);
    y.as<int64_t>()[row] = row % 10;
  }
  std::map<std::string, TensorView, std::less<>> tensors = {{"x", x.view()}};
  if (with_labels) tensors["y"] = y.view();
  const std::string path = folder.path() + "/rows.safetensors";
  EXPECT_TRUE(WriteFileAtomically(path, SerializeSafetensors(tensors)).ok());
  return path;
}

TEST(InputSourceTest, AClassifierTakesRowsOfAFileAndItsLabels) {
  const TemporaryFolder folder;
  const std::string path = WriteLabelledRows(folder, /*with_labels=*/true);
  Recipe recipe;
  recipe.set_seed(3);
  SetParts(*recipe.mutable_data()->mutable_points());
  const auto source = InputSource::Make(recipe, ImageModel(), Direction::kForward, path);
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ(source->Training(0, 8).entry, Entry::kInput);
  const auto fitted = LoadLabelled(recipe, {.shape = kImageInput}, 10, ImagePart::kTraining, path);
  const auto test = LoadLabelled(recipe, {.shape = kImageInput}, 10, ImagePart::kTest, path);
  ASSERT_TRUE(fitted.ok() && test.ok()) << fitted.status() << test.status();
  EXPECT_EQ(test->images.bytes, source->HeldOut(50)->rows.bytes);
  EXPECT_EQ(HostTensor::CopyOf(RowsOf(fitted->images.view(), 100, 100)).bytes,
            source->Validation(100)->rows.bytes);
  for (int64_t row = 0; row < test->rows(); ++row) {
    EXPECT_EQ(test->labels[row], test->images.as<uint8_t>()[4 * row] % 10);
  }
}

TEST(InputSourceTest, ASolverOfAClassifierNeedsNoLabels) {
  const TemporaryFolder folder;
  const std::string path = WriteLabelledRows(folder, /*with_labels=*/false);
  Recipe recipe;
  SetParts(*recipe.mutable_data()->mutable_points());
  EXPECT_TRUE(InputSource::Make(recipe, ImageModel(), Direction::kForward, path).ok());
  EXPECT_THAT(
      std::string(LoadLabelled(recipe, {.shape = kImageInput}, 10, ImagePart::kTraining, path)
                      .status()
                      .message()),
      HasSubstr("'y'"));
}

TEST(InputSourceTest, WhatARecipeCannotTakeIsSaid) {
  Recipe recipe, images;
  recipe.mutable_data()->set_density("rings");
  images.mutable_data()->mutable_idx()->set_validation_rows(256);
  EXPECT_THAT(
      std::string(
          InputSource::Make(recipe, ImageModel(), Direction::kForward, "").status().message()),
      HasSubstr("a classifier takes data.idx, or data.points"));
  ModelSpec flow{.kind = ModelKind::kFlow, .direction = Direction::kNoiseToData};
  flow.input.shape = {2};
  EXPECT_THAT(
      std::string(InputSource::Make(images, flow, Direction::kNoiseToData, "").status().message()),
      HasSubstr("a flow takes data.density, data.points or data.states"));
}

TEST(InputSourceTest, TheDigestTellsFilesApart) {
  const TemporaryFolder folder;
  Recipe recipe;
  SetParts(*recipe.mutable_data()->mutable_points());
  ModelSpec spec{.kind = ModelKind::kFlow, .direction = Direction::kDataToNoise};
  spec.input.shape = {2};
  const std::string path = folder.path() + "/rows.csv";
  const auto digest = [&](const std::string& last_row) {
    std::string rows;
    for (int i = 0; i < 299; ++i) rows += "1.5,2.5\n";
    EXPECT_TRUE(WriteFileAtomically(path, rows + last_row).ok());
    return InputSource::Make(recipe, spec, Direction::kDataToNoise, path)->Digest();
  };
  const std::string one = digest("1.5,2.5\n");
  EXPECT_EQ(digest("1.5,2.5\n"), one);
  EXPECT_NE(digest("1.5,2.25\n"), one);
}

}  // namespace
}  // namespace hyperserve
