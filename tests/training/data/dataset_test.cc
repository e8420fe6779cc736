#include "training/data/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/engine/batch_spec.h"
#include "core/engine/engine.h"
#include "core/io/file.h"
#include "core/io/safetensors.h"
#include "core/io/tensor.h"
#include "core/model/layers/dense.h"
#include "core/model/layers/images.h"
#include "core/model/layers/layer.h"
#include "core/model/spec/spec.h"
#include "tests/testing/idx_fixture.h"
#include "tests/testing/model_fixture.h"
#include "tests/training/data/image_model.h"
#include "training/data/density.h"
#include "training/data/image_files.h"
#include "training/data/recipe.h"
#include "training/data/recipe.pb.h"

namespace hyperserve {
namespace {

using ::testing::HasSubstr;

Recipe ImageRecipe(int validation_rows) {
  Recipe recipe;
  recipe.set_seed(3);
  recipe.mutable_data()->mutable_idx()->set_validation_rows(validation_rows);
  return recipe;
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
  const auto images = LoadImages(folder.path(), ImagePart::kTraining, {.shape = kImageInput}, 10);
  ASSERT_TRUE(images.ok()) << images.status();
  EXPECT_EQ(images->images.shape, (Shape{20, 1, 2, 2}));
  EXPECT_EQ(images->labels[13], 3);
  EXPECT_EQ(images->images.as<uint8_t>()[4 * 13], 13);
}

TEST(DatasetTest, SaysWhatIsMissingOrDoesNotFit) {
  const TemporaryFolder folder;
  const auto missing = LoadImages(folder.path(), ImagePart::kTest, {.shape = kImageInput}, 10);
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("t10k-images-idx3-ubyte.gz"));
  fixture::WriteIdxData(folder.path(), {.training_rows = 20, .test_rows = 5, .side = 2});
  EXPECT_EQ(LoadImages(folder.path(), ImagePart::kTest, {.shape = {1, 3, 3}}, 10).status().code(),
            absl::StatusCode::kInvalidArgument);
  const auto classes = LoadImages(folder.path(), ImagePart::kTraining, {.shape = kImageInput}, 5);
  EXPECT_THAT(std::string(classes.status().message()),
              HasSubstr("label 5 where the model has 5 outputs"));
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
  EXPECT_EQ(source->validation_rows(), 40);
  EXPECT_EQ(source->Validation(41).status().code(), absl::StatusCode::kInvalidArgument);
}

// An NPY file of these numbers, [rows, columns].
std::string Npy(const std::vector<float>& numbers, int64_t columns) {
  const std::string header =
      absl::StrCat("{'descr': '<f4', 'fortran_order': False, 'shape': (",
                   static_cast<int64_t>(numbers.size()) / columns, ", ", columns, "), }\n");
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += {static_cast<char>(header.size()), '\0'};
  return bytes + header +
         std::string(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(float));
}

TEST(DatasetTest, NothingIsRelabelled) {
  const TemporaryFolder folder;
  fixture::WriteIdxData(folder.path(), {.training_rows = 20, .test_rows = 5, .side = 4});
  const auto same_count = LoadImages(folder.path(), ImagePart::kTraining, {.shape = {2, 8}}, 10);
  EXPECT_THAT(std::string(same_count.status().message()),
              HasSubstr("a row has shape [4, 4], the model takes [2, 8]"));
}

TEST(DatasetTest, ReadsOtherFormsOfImages) {
  const TemporaryFolder folder;
  const auto write = [&](const std::string& name, const std::string& bytes) {
    ASSERT_TRUE(WriteFileAtomically(folder.path() + "/" + name, bytes).ok());
  };
  write("train-images.npy", Npy({0, 0.25, 0.5, 0.75, 1, 0, 0, 0}, 4));
  write("train-labels.csv", "label\n3\n1\n");
  const auto flat = LoadImages(folder.path(), ImagePart::kTraining, {.shape = {4}}, 10);
  ASSERT_TRUE(flat.ok()) << flat.status();
  EXPECT_EQ(flat->images.as<float>()[3], 0.75F);
  EXPECT_EQ(flat->labels, (std::vector<int64_t>{3, 1}));
  write("train-images.npy", Npy({0, 0.25, 0.5, 1.5}, 4));
  const auto large =
      LoadImages(folder.path(), ImagePart::kTraining, {.shape = {4}, .unit_range = true}, 10);
  EXPECT_THAT(std::string(large.status().message()), HasSubstr("holds 1.5; numbers within [0, 1]"));
  write("train-labels.csv", "0.5\n");
  write("train-images.npy", Npy({0, 0, 0, 0}, 4));
  EXPECT_FALSE(LoadImages(folder.path(), ImagePart::kTraining, {.shape = {4}}, 10).ok());
}

// A record of CIFAR-10: all pixels of channel c are 10 * label + c.
std::string CifarRecord(int label) {
  std::string record(1, static_cast<char>(label));
  for (int channel = 0; channel < 3; ++channel) {
    record += std::string(1024, static_cast<char>(10 * label + channel));
  }
  return record;
}

TEST(DatasetTest, ReadsTheBatchesOfCifar) {
  const TemporaryFolder folder;
  const auto write = [&](const std::string& name, const std::string& bytes) {
    ASSERT_TRUE(WriteFileAtomically(folder.path() + "/" + name, bytes).ok());
  };
  write("test_batch.bin", CifarRecord(7) + CifarRecord(2));
  for (int i = 1; i <= 4; ++i) write(absl::StrCat("data_batch_", i, ".bin"), CifarRecord(i));
  const InputSpec input{.shape = {3, 32, 32}};
  const auto test = LoadImages(folder.path(), ImagePart::kTest, input, 10);
  ASSERT_TRUE(test.ok()) << test.status();
  EXPECT_EQ(test->images.shape, (Shape{2, 3, 32, 32}));
  EXPECT_EQ(test->labels, (std::vector<int64_t>{7, 2}));
  EXPECT_EQ(test->images.as<uint8_t>()[1023], 70);
  EXPECT_EQ(test->images.as<uint8_t>()[1024], 71);
  EXPECT_EQ(test->images.as<uint8_t>()[3072 + 2048], 22);
  const auto message = [&](ImagePart part, const InputSpec& spec) {
    return std::string(LoadImages(folder.path(), part, spec, 10).status().message());
  };
  EXPECT_THAT(message(ImagePart::kTraining, input), HasSubstr("data_batch_5.bin"));
  write("data_batch_5.bin", CifarRecord(5) + "half of a record");
  EXPECT_THAT(message(ImagePart::kTraining, input), HasSubstr("3089 bytes are no records of 3073"));
  write("data_batch_5.bin", CifarRecord(5));
  EXPECT_EQ(LoadImages(folder.path(), ImagePart::kTraining, input, 10)->labels,
            (std::vector<int64_t>{1, 2, 3, 4, 5}));
  EXPECT_THAT(message(ImagePart::kTest, {.shape = {32, 32, 3}}), HasSubstr("[3, 32, 32]"));
}

// A file of 300 rows, each of whose numbers is that of the row.
std::string WriteNumberedRows(const TemporaryFolder& folder, int columns) {
  std::vector<float> numbers;
  for (int i = 0; i < 300; ++i) numbers.insert(numbers.end(), columns, static_cast<float>(i));
  const std::string path = folder.path() + "/rows.npy";
  EXPECT_TRUE(WriteFileAtomically(path, Npy(numbers, columns)).ok());
  return path;
}

void SetParts(training::Points& parts) {
  parts.set_validation_rows(100);
  parts.set_held_out_rows(50);
}

TEST(InputSourceTest, GivenStatesServeBothDirections) {
  const TemporaryFolder folder;
  const std::string path = WriteNumberedRows(folder, 2);
  Recipe recipe;
  recipe.set_seed(3);
  SetParts(*recipe.mutable_data()->mutable_states());
  ModelSpec spec{.kind = ModelKind::kFlow, .direction = Direction::kNoiseToData};
  spec.input.shape = {2};
  for (const Direction direction : {Direction::kNoiseToData, Direction::kDataToNoise}) {
    const auto source = InputSource::Make(recipe, spec, direction, path);
    ASSERT_TRUE(source.ok()) << source.status();
    EXPECT_EQ(source->validation_rows(), 100);
    for (const SolveInputs& set : {source->Training(0, 64), *source->HeldOut(50)}) {
      for (const float number : set.rows.as<float>()) {
        EXPECT_TRUE(number >= 0 && number < 300 && number == std::floor(number)) << number;
      }
    }
  }
}

TEST(InputSourceTest, PointsOfAFileAreShuffledAndShared) {
  const TemporaryFolder folder;
  const std::string path = WriteNumberedRows(folder, 3);
  Recipe recipe;
  recipe.set_seed(3);
  SetParts(*recipe.mutable_data()->mutable_points());
  ModelSpec spec{.kind = ModelKind::kFlow, .direction = Direction::kDataToNoise};
  spec.input.shape = {3};
  const auto source = InputSource::Make(recipe, spec, Direction::kDataToNoise, path);
  ASSERT_TRUE(source.ok()) << source.status();
  const auto places = [](const SolveInputs& inputs) {
    std::set<float> places;
    for (int64_t i = 0; i < inputs.count(); ++i) places.insert(inputs.rows.as<float>()[3 * i]);
    return places;
  };
  const SolveInputs fitted = source->Training(0, 5000);
  EXPECT_EQ(fitted.entry, Entry::kState);
  std::set<float> all = places(fitted);
  EXPECT_EQ(all.size(), 150U);
  all.merge(places(*source->Validation(100)));
  all.merge(places(*source->HeldOut(50)));
  EXPECT_EQ(all.size(), 300U) << "three sets that share no row";
  EXPECT_EQ(source->HeldOut(51).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(*places(*source->HeldOut(50)).rbegin(), 49) << "shuffled";
  recipe.mutable_data()->mutable_points()->set_held_out_rows(200);
  EXPECT_THAT(
      std::string(
          InputSource::Make(recipe, spec, Direction::kDataToNoise, path).status().message()),
      HasSubstr("300 rows; validation_rows 100 and held_out_rows 200 leave nothing"));
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
  EXPECT_EQ(noise->validation_rows(), std::nullopt);
  EXPECT_NE(noise->Training(0, 8).rows.bytes, noise->Validation(8)->rows.bytes);
  EXPECT_NE(noise->HeldOut(8)->rows.bytes, noise->Validation(8)->rows.bytes);
}

// A flow of two numbers with a condition of two.
ModelSpec ConditionalSpec() {
  ModelSpec spec{.kind = ModelKind::kFlow, .direction = Direction::kNoiseToData};
  spec.input.shape = {2};
  spec.condition = {2};
  return spec;
}

TEST(InputSourceTest, BothDirectionsHaveTheConditionsOfTheDensity) {
  Recipe recipe;
  recipe.set_seed(3);
  recipe.mutable_data()->set_density("two_moons");
  const ModelSpec spec = ConditionalSpec();
  const auto noise = InputSource::Make(recipe, spec, Direction::kNoiseToData, "");
  const auto data = InputSource::Make(recipe, spec, Direction::kDataToNoise, "");
  ASSERT_TRUE(noise.ok() && data.ok()) << noise.status() << data.status();
  const std::vector<float> drawn = Density::Named("two_moons")->Draw(3, 0, 8);
  const SolveInputs points = data->Training(0, 8), starts = noise->Training(0, 8);
  EXPECT_EQ(points.condition.shape, (Shape{8, 2}));
  for (size_t i = 0; i < 16; ++i) {
    const size_t place = i / 2 * 4 + i % 2;
    EXPECT_EQ(points.rows.as<float>()[i], drawn[place]);
    EXPECT_EQ(points.condition.as<float>()[i], drawn[place + 2]);
  }
  EXPECT_EQ(starts.condition.bytes, points.condition.bytes);
  EXPECT_NE(starts.rows.bytes, points.rows.bytes);
  const auto probe = SafetensorsFile::Parse(ProbeBytes(*noise, 16).value());
  EXPECT_EQ(probe->Find("condition")->shape, (Shape{16, 2}));
  recipe.mutable_data()->set_density("rings");
  EXPECT_THAT(
      std::string(InputSource::Make(recipe, spec, Direction::kNoiseToData, "").status().message()),
      HasSubstr("'rings' have 0 numbers as their condition, condition.shape of the model "
                "says 2"));
}

TEST(InputSourceTest, PointsOfAFileKeepTheirConditions) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/pairs.safetensors";
  HostTensor x = HostTensor::Zeros(Dtype::kF32, {300, 2}), condition = x;
  for (size_t i = 0; i < 600; ++i) {
    x.as<float>()[i] = static_cast<float>(i);
    condition.as<float>()[i] = static_cast<float>(i) + 1000.0F;
  }
  const auto write = [&](const std::map<std::string, TensorView, std::less<>>& tensors) {
    ASSERT_TRUE(WriteFileAtomically(path, SerializeSafetensors(tensors)).ok());
  };
  write({{"x", x.view()}, {"condition", condition.view()}});
  Recipe recipe;
  recipe.set_seed(3);
  SetParts(*recipe.mutable_data()->mutable_points());
  const ModelSpec spec = ConditionalSpec();
  const auto data = InputSource::Make(recipe, spec, Direction::kDataToNoise, path);
  const auto noise = InputSource::Make(recipe, spec, Direction::kNoiseToData, path);
  ASSERT_TRUE(data.ok() && noise.ok()) << data.status() << noise.status();
  for (const SolveInputs& set : {data->Training(0, 64), *data->Validation(100)}) {
    for (size_t i = 0; i < set.rows.as<float>().size(); ++i) {
      EXPECT_EQ(set.condition.as<float>()[i], set.rows.as<float>()[i] + 1000.0F);
    }
  }
  EXPECT_EQ(noise->HeldOut(50)->condition.bytes, data->HeldOut(50)->condition.bytes);
  EXPECT_EQ(noise->Training(1, 64).condition.bytes, data->Training(1, 64).condition.bytes);
  EXPECT_NE(noise->Training(1, 64).rows.bytes, noise->Training(0, 64).rows.bytes);
  const auto error = [&] {
    return std::string(
        InputSource::Make(recipe, spec, Direction::kDataToNoise, path).status().message());
  };
  write({{"x", x.view()}});
  EXPECT_THAT(error(), HasSubstr("condition"));
  write({{"x", x.view()}, {"condition", RowsOf(condition.view(), 0, 299)}});
  EXPECT_THAT(error(), HasSubstr("condition is [299, 2], wanted is [300, 2]"));
}

}  // namespace
}  // namespace hyperserve
