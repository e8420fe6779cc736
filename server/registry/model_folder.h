// The files of a model in its folder, read as one, and whether they changed. Reads the disk and
// blocks on it; keeps no state.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "server/registry/served_model.h"

namespace hyperserve {

// Which files ACTIVE, VERDICTS.json or those of a model are: number, size and time of each. Every
// change makes another stamp.
std::string StampOfHypersolvers(const std::string& hypersolver_folder);
// A file that is missing has its place in the stamp, so that its coming is a change.
std::string StampOfModel(const std::string& model_folder);
// Did nobody change a file of the model for some seconds? A copy under way is not read.
bool IsSettled(const std::string& model_folder);

// The model with its calibration, without corrections and not warmed. `problem` says why
// calibration.json is not used. The code that a model brings is run where `allow_code` has its
// name, else the model is refused. Fails as Model::FromFile and ReadFile do, with kInvalidArgument
// for a name that no folder of a repository may have.
absl::StatusOr<std::shared_ptr<ServedModel>> ReadModelFolder(
    const std::string& model_folder, const std::set<std::string>& allow_code = {});

}  // namespace hyperserve
