// Runs one of our programs as a process: starts it, sends signals, waits, keeps its output.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace hyperserve {

using Environment = std::map<std::string, std::string>;  // added to the caller's own

class Process {
 public:
  // Output goes to the two files. Aborts the test program if no process can be made. A program that
  // does not exist exits with 127.
  Process(const std::vector<std::string>& words, const std::string& stdout_path,
          const std::string& stderr_path, const Environment& added = {});
  ~Process();  // killed and waited for, if it still runs
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void Signal(int signal) const;
  // The exit code, or minus the signal that ended it; nullopt: it still runs after `limit`.
  std::optional<int> Wait(std::chrono::milliseconds limit);
  pid_t id() const { return id_; }

 private:
  const pid_t id_;
  std::optional<int> ended_;
};

struct Finished {
  int exit_code = 0;
  std::string out, err;
};
// Runs a program to its end, or kills it after two minutes (exit code -9).
Finished RunToEnd(const std::vector<std::string>& words, const Environment& added = {});

}  // namespace hyperserve
