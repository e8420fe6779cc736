// Where results go: stdout, and the files that options name. What cannot be written is never lost
// in silence.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace hyperserve {

// To be called before anything is opened: HoldStandardStreams, and more. A limit on the size of
// files is an error of writing, no signal; SIGPIPE keeps ending the program, quietly.
void SetUpOutput();

// Writes to stdout at once; false: it takes no more. Main thread only.
bool PrintOut(std::string_view text);
// errno of the first failure of PrintOut since SetUpOutput; 0: none. RunProgram tells it.
int OutputError();

// Whole or not at all (core/io/file.h); a failure points to the file.
absl::Status WriteOutFile(const std::string& path, std::string_view bytes);

}  // namespace hyperserve
