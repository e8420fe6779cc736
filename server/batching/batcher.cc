#include "server/batching/batcher.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "server/batching/batch_loop.h"

namespace hyperserve {
namespace {

constexpr std::chrono::seconds kErrandLimit(2);

}  // namespace

Batcher::Batcher(const BatcherOptions& options, const std::vector<DeviceRuntime*>& runtimes,
                 const Clock* clock)
    : runtimes_(runtimes) {
  for (DeviceRuntime* const runtime : runtimes) {
    BatchLoop* const loop =
        loops_.emplace_back(std::make_unique<BatchLoop>(options, runtime, clock)).get();
    for (int i = 0; i < options.solvers; ++i) {
      threads_.emplace_back([loop] {
        BatchLoop::Seat seat;
        do {
          while (loop->Step(seat)) continue;
        } while (loop->WaitForWork(seat));
      });
    }
  }
}

Batcher::~Batcher() {
  Drain(std::chrono::milliseconds(0));
  for (const auto& loop : loops_) loop->Stop();
  for (std::thread& thread : threads_) thread.join();
}

void Batcher::Submit(Work work, WorkDone done) {
  const auto macs = [](const std::unique_ptr<BatchLoop>& loop) { return loop->depth().macs; };
  const auto least = std::ranges::min_element(loops_, {}, macs);
  (*least)->Submit(std::move(work), std::move(done));
}

bool Batcher::Drain(std::chrono::milliseconds limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  bool all = true;
  for (const auto& loop : loops_) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        until - std::chrono::steady_clock::now());
    all = loop->Drain(std::max(left, std::chrono::milliseconds(0))) && all;
  }
  return all;
}

void Batcher::DoOnSolvers(const std::function<void(DeviceRuntime&)>& errand) {
  for (size_t i = 0; i < loops_.size(); ++i) {
    loops_[i]->DoOnSeats([&, i] { errand(*runtimes_[i]); }, kErrandLimit);
  }
}

QueueDepth Batcher::depth() const {
  QueueDepth all;
  for (const auto& loop : loops_) {
    const QueueDepth one = loop->depth();
    all.requests += one.requests;
    all.rows += one.rows;
    all.bytes += one.bytes;
    all.macs += one.macs;
    all.queues += one.queues;
  }
  return all;
}

}  // namespace hyperserve
