// safetensors files: a JSON header (name -> dtype, shape, byte range) and raw little-endian data.
// Every offset is checked against the file before it is used; a file that lies is kInvalidArgument
// and never read past.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/io/tensor.h"

namespace hyperserve {

// A parsed file, memory-mapped (Open) or owning a copy of its bytes (Parse). Movable; views live as
// long as it does. Refused: header over 16 MiB or longer than the file, ranges that overlap, leave
// holes, end beyond the file or do not match dtype and shape, dtypes outside Dtype, duplicate
// names.
class SafetensorsFile {
 public:
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);
  static absl::StatusOr<SafetensorsFile> Parse(std::string bytes);

  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;
  ~SafetensorsFile();

  const std::map<std::string, TensorView, std::less<>>& tensors() const;
  const std::map<std::string, std::string>& metadata() const;  // the header's __metadata__
  // kNotFound names the tensor and the ones that are there.
  absl::StatusOr<TensorView> Find(std::string_view name) const;

 private:
  struct Contents;
  explicit SafetensorsFile(std::unique_ptr<Contents> contents);
  std::unique_ptr<Contents> contents_;
};

// The file's bytes; tensors in the order of the map, data aligned to 8 bytes.
std::string SerializeSafetensors(const std::map<std::string, TensorView, std::less<>>& tensors,
                                 const std::map<std::string, std::string>& metadata = {});

}  // namespace hyperserve
