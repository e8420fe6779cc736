#include "tests/testing/package_fixture.h"

#include <caffe2/serialize/inline_container.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/io/safetensors.h"
#include "core/io/tensor.h"

namespace hyperserve::fixture {
namespace {

std::string FileBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string NoWeights() { return SerializeSafetensors({}); }

}  // namespace

std::string FieldPackageBytes(const std::string& isa) {
  std::string bytes;
  caffe2::serialize::PyTorchStreamWriter archive([&](const void* data, size_t size) {
    bytes.append(static_cast<const char*>(data), size);
    return size;
  });
  const std::string library = FileBytes(FIELD_CODE);
  const std::string facts =
      absl::StrCat(R"({"AOTI_DEVICE_KEY": "cpu", "AOTI_CPU_ISA": ")", isa, "\"}");
  const std::string stem = "data/aotinductor/model/decay.wrapper";
  archive.writeRecord(stem + ".so", library.data(), library.size());
  archive.writeRecord(stem + "_metadata.json", facts.data(), facts.size());
  archive.writeEndOfFile();
  return bytes;
}

std::string CodedFlowJson(int condition_features) {
  return PrintModelSpec({.kind = ModelKind::kFlow,
                         .direction = Direction::kNoiseToData,
                         .span = {0, 1},
                         .input = {.shape = {2}},
                         .condition = condition_features > 0 ? Shape{condition_features} : Shape{},
                         .stem = {},
                         .field = {},
                         .head = {},
                         .field_package = FieldPackageSpec{.macs = 4},
                         .labels = {}});
}

std::shared_ptr<const Model> CodedFlow(int condition_features, FieldCode code) {
  auto model =
      Model::FromFile(CodedFlowJson(condition_features),
                      SafetensorsFile::Parse(NoWeights()).value(), FieldPackageBytes(), code);
  if (!model.ok()) {
    std::cerr << model.status() << "\n";
    std::abort();
  }
  return *std::move(model);
}

void WriteCodedFlow(const std::string& repository, const std::string& name) {
  const std::string folder = absl::StrCat(repository, "/", name, "/");
  std::filesystem::create_directories(folder);
  const std::pair<const char*, std::string> files[] = {{"model.json", CodedFlowJson()},
                                                       {"weights.safetensors", NoWeights()},
                                                       {"field.pt2", FieldPackageBytes()}};
  for (const auto& [file, bytes] : files) std::ofstream(folder + file, std::ios::binary) << bytes;
}

}  // namespace hyperserve::fixture
