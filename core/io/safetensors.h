// safetensors files: a JSON header (name -> dtype, shape, byte range) and raw little-endian data.
// Reading never runs code from the file and never reads past its end: every offset is checked
// against the file's size first.
//
// Source: https://github.com/huggingface/safetensors, section "Format" of the README.
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

// A parsed file. Its views are valid until it is destroyed, also after a move. A const object may
// be read from several threads.
//
// kInvalidArgument names the tensor or the byte where a header is longer than 16 MiB or than the
// file, where byte ranges overlap, leave holes, end beyond the file or do not match dtype and
// shape, where a dtype is none of Dtype, and where a name stands twice.
class SafetensorsFile {
 public:
  // Maps the file into memory; the messages of failures name `path`. Nobody may change the file in
  // place while this object lives; replacing it by a rename is safe. Also fails as open and mmap
  // do, with their code: kNotFound where there is no file.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);
  // Keeps `bytes`, and its views point into them.
  static absl::StatusOr<SafetensorsFile> Parse(std::string bytes);

  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;
  ~SafetensorsFile();

  // Sorted by name, without __metadata__.
  const std::map<std::string, TensorView, std::less<>>& tensors() const;
  std::string_view bytes() const;  // the whole file
  // Gives the memory of a part of a file of Parse back to the system, in whole pages: the part may
  // read as zeros from then on. So whoever copies a large file piece by piece never holds it twice.
  void Release(std::span<const std::byte> part);
  const std::map<std::string, std::string>& metadata() const;  // the header's __metadata__
  // kNotFound names the tensor that is missing and lists those that the file holds.
  absl::StatusOr<TensorView> Find(std::string_view name) const;

 private:
  struct Contents;
  explicit SafetensorsFile(std::unique_ptr<Contents> contents);
  std::unique_ptr<Contents> contents_;
};

// What a file is that people take for another, by its first bytes: a zip, a pickle, gzip, a pointer
// of Git LFS. Says in words what to do. Empty: nothing that is known.
std::string_view MistakenFile(std::string_view bytes);

// The bytes of a file with these tensors. The data begins at a multiple of 8 bytes, and tensors of
// wide elements come first, so each tensor is aligned to its elements. Equal arguments give equal
// bytes. Precondition: each view has as many bytes as its dtype and shape need.
std::string SerializeSafetensors(const std::map<std::string, TensorView, std::less<>>& tensors,
                                 const std::map<std::string, std::string>& metadata = {});

}  // namespace hyperserve
