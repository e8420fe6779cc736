#include "tests/e2e/process.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <thread>

#include "absl/strings/str_cat.h"
#include "core/io/file.h"
#include "tests/testing/model_fixture.h"

namespace hyperserve {
namespace {

constexpr int kNotFound = 127;
constexpr int64_t kOutputBytesMax = 256 << 20;
constexpr std::chrono::minutes kRunLimit{2};

void SendTo(int descriptor, const std::string& path) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0 || dup2(file, descriptor) < 0) _exit(kNotFound);
}

pid_t Start(const std::vector<std::string>& words, const std::string& stdout_path,
            const std::string& stderr_path, const Environment& added) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (!added.contains(text.substr(0, text.find('=')))) environment.push_back(text);
  }
  for (const auto& [name, value] : added) environment.push_back(absl::StrCat(name, "=", value));
  std::vector<char*> entries;
  for (std::string& entry : environment) entries.push_back(entry.data());
  entries.push_back(nullptr);
  const pid_t id = fork();
  if (id < 0) std::abort();
  if (id > 0) return id;
  // Only calls that are safe between fork and exec in a program with threads.
  SendTo(STDOUT_FILENO, stdout_path);
  SendTo(STDERR_FILENO, stderr_path);
  execve(arguments[0], arguments.data(), entries.data());
  _exit(kNotFound);
}

}  // namespace

Process::Process(const std::vector<std::string>& words, const std::string& stdout_path,
                 const std::string& stderr_path, const Environment& added)
    : id_(Start(words, stdout_path, stderr_path, added)) {}

Process::~Process() {
  if (ended_) return;
  Signal(SIGKILL);
  waitpid(id_, nullptr, 0);
}

void Process::Signal(int signal) const {
  if (!ended_) kill(id_, signal);
}

std::optional<int> Process::Wait(std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!ended_) {
    int status = 0;
    if (waitpid(id_, &status, WNOHANG) == id_) {
      ended_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    } else if (std::chrono::steady_clock::now() >= end) {
      break;
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  return ended_;
}

Finished RunToEnd(const std::vector<std::string>& words, const Environment& added) {
  const TemporaryFolder folder;
  const std::string out = folder.path() + "/out", err = folder.path() + "/err";
  Finished finished;
  {
    Process process(words, out, err, added);
    finished.exit_code = process.Wait(kRunLimit).value_or(-SIGKILL);
  }
  finished.out = ReadFile(out, kOutputBytesMax).value_or("");
  finished.err = ReadFile(err, kOutputBytesMax).value_or("");
  return finished;
}

}  // namespace hyperserve
