// A daemon whose listener accepts no more notices it and ends, so that its supervisor starts
// another.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/e2e/daemon.h"
#include "tests/testing/model_fixture.h"

namespace hyperserve {
namespace {

class Descriptor {
 public:
  explicit Descriptor(long number) : number_(static_cast<int>(number)) {}
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  const int number_;
};

int PortOf(const std::string& address) { return std::stoi(address.substr(address.rfind(':') + 1)); }

bool ListensOn(int socket, int port) {
  int listens = 0;
  socklen_t size = sizeof listens;
  sockaddr_in name{};
  socklen_t name_size = sizeof name;
  return getsockopt(socket, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens == 1 &&
         getsockname(socket, reinterpret_cast<sockaddr*>(&name), &name_size) == 0 &&
         ntohs(name.sin_port) == port;
}

// Takes the process's own listening socket of the port and ends its listening, as a fault of the
// library or the kernel would. The errno of what this system does not permit, else 0; ENOENT: there
// is no such socket.
int Deafen(pid_t process, int port) {
  const Descriptor handle(syscall(SYS_pidfd_open, process, 0));
  if (handle.number() < 0) return errno;
  namespace fs = std::filesystem;
  for (const auto& entry : fs::directory_iterator("/proc/" + std::to_string(process) + "/fd")) {
    const int theirs = std::stoi(entry.path().filename());
    const Descriptor ours(syscall(SYS_pidfd_getfd, handle.number(), theirs, 0));
    if (ours.number() < 0 && errno != EBADF) return errno;  // closed meanwhile
    if (ListensOn(ours.number(), port)) return shutdown(ours.number(), SHUT_RD) == 0 ? 0 : errno;
  }
  return ENOENT;
}

TEST(Deaf, EndsNonZeroWhereAListenerAcceptsNoMore) {
  TemporaryFolder repository;
  ASSERT_TRUE(fixture::WriteTinyRepository(repository.path()).ok());
  std::vector<std::unique_ptr<Daemon>> daemons;  // three, since each takes a quarter of a minute
  for (int i = 0; i < 3; ++i) {
    auto daemon = Daemon::Start(repository.path(), {"--read_only"});
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemons.push_back(*std::move(daemon));
  }
  const std::vector<std::string> names = {"address", "admin_address", "http_address"};
  const std::vector<std::string> addresses = {daemons[0]->address(), daemons[1]->admin_address(),
                                              daemons[2]->http_address()};
  for (size_t i = 0; i < daemons.size(); ++i) {
    const int fault = Deafen(daemons[i]->id(), PortOf(addresses[i]));
    if (fault == EPERM || fault == ENOSYS) {
      GTEST_SKIP() << "this system does not lend descriptors of other processes: pidfd_getfd, "
                   << std::string(strerror(fault));
    }
    ASSERT_EQ(fault, 0) << names[i];
  }
  for (size_t i = 0; i < daemons.size(); ++i) {
    EXPECT_EQ(daemons[i]->WaitForExit(), 1) << names[i];
    EXPECT_THAT(daemons[i]->Log(), testing::HasSubstr("event=deaf port=" + names[i])) << names[i];
  }
}

}  // namespace
}  // namespace hyperserve
