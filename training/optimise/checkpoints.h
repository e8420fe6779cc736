// Where a run keeps the states of its fits while it lasts, so that the same run, begun again after
// it was stopped or killed, goes on from there: a folder with one safetensors file for each fit.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/io/file_lock.h"
#include "core/model/net/net.h"

namespace hyperserve {

// One thread. Tells what it does on standard error. Nothing is written before the run has lasted
// for `every`, so short runs leave nothing.
class Checkpoints {
 public:
  // Fixed at construction, but for the parts of the identity that Identify adds.
  struct Options {
    std::string folder;  // of this run alone; it is made for the first file
    std::chrono::duration<double> every = std::chrono::seconds(30);
    bool resume = false;  // goes on from the states that are there
    // What the states belong to: a word, as "recipe", and a digest.
    std::map<std::string, std::string> identity;
  };
  explicit Checkpoints(Options options);
  Checkpoints(const Checkpoints&) = delete;
  Checkpoints& operator=(const Checkpoints&) = delete;

  // One more part of the identity. Called before the first Load.
  void Identify(const std::string& what, const std::string& digest);

  // The state of the fit that was saved last; nullopt: there is none, or the run begins anew.
  // kFailedPrecondition: it is of another identity, and the message says which part differs; or
  // another process is at this run. kInvalidArgument: the file is damaged.
  absl::StatusOr<std::optional<TensorMap>> Load(const std::string& fit);

  // Has the run lasted long enough to be worth a file, and it the last file for one more?
  bool Worth() const { return Clock::now() - begun_ >= options_.every; }
  // Counted from the last Save of any fit, also one that failed.
  bool Due() const { return Clock::now() - saved_ >= options_.every; }
  // Replaces the file of the fit in one step: a reader or a kill never sees half of it. The first
  // one removes the files of an earlier run, unless this run goes on from them. A failure is told
  // once and does no harm to the fit. `state` is on the CPU.
  void Save(const std::string& fit, const TensorMap& state);

  // The run is done: removes its folder.
  void Remove();

 private:
  using Clock = std::chrono::steady_clock;
  std::string FileOf(const std::string& fit) const;
  absl::Status Lock();
  absl::Status Write(const std::string& fit, const TensorMap& state);

  Options options_;
  const Clock::time_point begun_ = Clock::now();
  Clock::time_point saved_ = begun_;
  std::optional<FileLock> lock_;  // of the folder, from the first file on
  bool failed_ = false;           // a failure was told
};

}  // namespace hyperserve
