#include "core/model/net/libtorch_name.h"

#include <dlfcn.h>
#include <elf.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/model/net/memory_file.h"

namespace hyperserve {
namespace {

constexpr char kName[] = "libtorch.so";

// A shared library without code and symbols: what the dynamic linker wants of one, and a name.
struct EmptyLibrary {
  Elf64_Ehdr header = {};
  Elf64_Phdr segments[3] = {};
  Elf64_Dyn dynamic[7] = {};
  Elf64_Sym no_symbol = {};
  Elf64_Word hash[4] = {1, 1, 0, 0};  // one bucket and one chain, both empty
  char names[1 + sizeof(kName)] = {};
};

EmptyLibrary MakeEmptyLibrary() {
  EmptyLibrary library;
  std::string_view(kName).copy(library.names + 1, sizeof(kName));
  Elf64_Ehdr& header = library.header;
  const unsigned char kind[] = {ELFMAG0,    ELFMAG1,     ELFMAG2,   ELFMAG3,
                                ELFCLASS64, ELFDATA2LSB, EV_CURRENT};
  std::ranges::copy(kind, header.e_ident);
  header.e_type = ET_DYN;
  header.e_machine = EM_X86_64;
  header.e_version = EV_CURRENT;
  header.e_phoff = offsetof(EmptyLibrary, segments);
  header.e_ehsize = sizeof(Elf64_Ehdr);
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = std::size(library.segments);
  auto& [whole, dynamic, stack] = library.segments;
  whole.p_type = PT_LOAD;
  whole.p_filesz = whole.p_memsz = sizeof(EmptyLibrary);
  whole.p_align = 4096;
  dynamic.p_type = PT_DYNAMIC;
  dynamic.p_offset = dynamic.p_vaddr = dynamic.p_paddr = offsetof(EmptyLibrary, dynamic);
  dynamic.p_filesz = dynamic.p_memsz = sizeof(library.dynamic);
  dynamic.p_align = alignof(Elf64_Dyn);
  stack.p_type = PT_GNU_STACK;  // without it the linker would make the stack executable
  // Writable, because the linker writes addresses into `dynamic`.
  for (Elf64_Phdr& segment : library.segments) segment.p_flags = PF_R | PF_W;
  const std::pair<Elf64_Sxword, Elf64_Xword> entries[] = {
      {DT_SONAME, 1},
      {DT_HASH, offsetof(EmptyLibrary, hash)},
      {DT_STRTAB, offsetof(EmptyLibrary, names)},
      {DT_SYMTAB, offsetof(EmptyLibrary, no_symbol)},
      {DT_STRSZ, sizeof(library.names)},
      {DT_SYMENT, sizeof(Elf64_Sym)},
      {DT_NULL, 0}};
  static_assert(std::size(entries) == std::size(EmptyLibrary{}.dynamic));
  for (size_t i = 0; i < std::size(entries); ++i) {
    library.dynamic[i].d_tag = entries[i].first;
    library.dynamic[i].d_un.d_val = entries[i].second;
  }
  return library;
}

}  // namespace

absl::Status ProvideLibTorchName() {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  if (dlopen(kName, RTLD_LAZY | RTLD_NOLOAD) != nullptr) return absl::OkStatus();
  const EmptyLibrary library = MakeEmptyLibrary();
  HS_ASSIGN_OR_RETURN(
      const MemoryFile file,
      MemoryFile::Make(kName, {reinterpret_cast<const char*>(&library), sizeof(library)}));
  if (dlopen(file.path().c_str(), RTLD_LAZY | RTLD_GLOBAL) != nullptr) return absl::OkStatus();
  const char* const why = dlerror();  // NOLINT(concurrency-mt-unsafe): under the lock
  return absl::FailedPreconditionError(
      absl::StrCat("no library can be loaded from memory: ", why == nullptr ? "" : why));
}

}  // namespace hyperserve
