// The program's --check: every problem of a model, a repository or a candidate, one line
// each. Called by main alone; blocks on the disk.
#pragma once

#include <string>
#include <vector>

namespace hyperserve {

// Reads a model folder, a repository of them, or a candidate: a folder with a hypersolver.json. Its
// model is looked for in the repository `models`, unless it stands in the model's own folder. Each
// line names a file and what is wrong with it, with control characters escaped. Empty: everything
// fits. It does not run the gate, changes nothing, and finds all problems, not only the first.
std::vector<std::string> CheckModelFolder(const std::string& folder,
                                          const std::string& models = "");

// The models of a model folder or a repository that bring code, one line each: what the file is,
// its SHA-256, and what runs it. Nothing is run. A file that cannot be read is CheckModelFolder's
// matter.
std::vector<std::string> ModelsWithCode(const std::string& folder);

}  // namespace hyperserve
