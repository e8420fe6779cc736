// `hyperserve --check FOLDER`: what does not fit, all of it, one line each.
#pragma once

#include <string>
#include <vector>

namespace hyperserve {

// Reads one model folder, or a repository of them, and says everything that does not fit: the file
// first, then what is wrong. Empty: all fits. Changes nothing.
std::vector<std::string> CheckModelFolder(const std::string& folder);

}  // namespace hyperserve
