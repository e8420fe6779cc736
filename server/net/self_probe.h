// The daemon connects to its own ports: a listener that accepts no more would leave a process that
// looks alive and serves nobody.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "server/net/listening_socket.h"

namespace hyperserve {

// A port of this process. A gRPC server speaks first; an HTTP server wants a request.
struct ProbedPort {
  std::string name;  // the flag of its address
  std::string host;
  int port = 0;
  std::string hello;  // is sent before the answer is awaited; empty: nothing
};

// Connects, sends the hello and waits for a byte or the end of the connection: both show that
// somebody accepts. False: neither came within `limit`. A process that has no descriptor for the
// try, or a kernel without room in its tables, is not the listener's fault: true.
bool PortAnswers(const ProbedPort& port, std::chrono::milliseconds limit);

// Names the ports that failed so often in a row that they count as dead. Pure but for its counts.
class PortVerdicts {
 public:
  explicit PortVerdicts(size_t ports) : failures_(ports, 0) {}
  // True: this failure makes the port dead.
  bool Note(size_t port, bool answered);
  static constexpr int kFailuresMax = 3;

 private:
  std::vector<int> failures_;  // in a row
};

// Probes all ports every `pause` on a thread of its own, and calls `dead` with the name of a port
// once it is dead. Thread-safe `dead` wanted; it is called at most once for each run of failures.
class SelfProbe {
 public:
  // Of one round: a pause, then each port in turn, which may take answer_max.
  struct Timing {
    std::chrono::milliseconds pause{5000}, answer_max{5000};
  };
  SelfProbe(std::vector<ProbedPort> ports, Timing timing,
            std::function<void(const std::string&)> dead);
  // Ends the thread; waits for the probe that runs.
  ~SelfProbe();

 private:
  void Run();

  const std::vector<ProbedPort> ports_;
  const Timing timing_;
  const std::function<void(const std::string&)> dead_;
  const Wake wake_;
  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

}  // namespace hyperserve
