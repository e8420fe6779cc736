// The program's --check: every problem of a model folder or a repository, one line each.
#pragma once

#include <string>
#include <vector>

namespace hyperserve {

// Reads a model folder, or a repository of them. Each line names a file and what is wrong with it,
// with control characters escaped. Empty: everything fits. It does not run the gate, changes
// nothing, and finds all problems, not only the first.
std::vector<std::string> CheckModelFolder(const std::string& folder);

}  // namespace hyperserve
