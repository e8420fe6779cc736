#include "client/frame/output.h"

#include <cerrno>
#include <csignal>
#include <cstdio>

#include "client/frame/failure.h"
#include "core/io/file.h"
#include "programs/standard_streams.h"

namespace hyperserve {
namespace {

int output_error = 0;

}  // namespace

void SetUpOutput() {
  HoldStandardStreams();
  std::signal(SIGXFSZ, SIG_IGN);
  output_error = 0;
}

bool PrintOut(std::string_view text) {
  const bool taken = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if ((!taken || std::fflush(stdout) != 0) && output_error == 0) output_error = errno;
  return output_error == 0;
}

int OutputError() { return output_error; }

absl::Status WriteOutFile(const std::string& path, std::string_view bytes) {
  return WithWayOut(WriteFileAtomically(path, bytes),
                    "name a file in a folder that can be written and has room for it");
}

}  // namespace hyperserve
