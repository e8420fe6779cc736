// The outputs of a command: stdout, and files that options name. A failure to write is never
// silent.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace hyperserve {

// Calls HoldStandardStreams and ignores SIGXFSZ, so that a limit on the size of files is an error
// of writing. SIGPIPE keeps its default and ends the program. Called once, before anything is
// opened.
void SetUpOutput();

// Writes to stdout and flushes; false after a failure, of this call or an earlier one. Main thread
// only.
bool PrintOut(std::string_view text);
// errno of the first failure of PrintOut since SetUpOutput; 0: none. RunProgram reports it.
int OutputError();

// Writes a file whole or not at all. Fails as WriteFileAtomically (core/io/file.h) does, with
// advice about the file.
absl::Status WriteOutFile(const std::string& path, std::string_view bytes);

}  // namespace hyperserve
