#include "server/batching/batcher.h"

#include <utility>

#include "server/batching/batch_loop.h"

namespace hyperserve {

Batcher::Batcher(BatcherOptions options, DeviceRuntime* runtime, const Clock* clock)
    : loop_(std::make_unique<BatchLoop>(options, runtime, clock)) {
  for (int i = 0; i < options.solvers; ++i) {
    threads_.emplace_back([this] {
      BatchLoop::Seat seat;
      do {
        while (loop_->Step(seat)) continue;
      } while (loop_->WaitForWork());
    });
  }
}

Batcher::~Batcher() {
  Drain(std::chrono::milliseconds(0));
  loop_->Stop();
  for (std::thread& thread : threads_) thread.join();
}

void Batcher::Submit(Work work, WorkDone done) { loop_->Submit(std::move(work), std::move(done)); }
bool Batcher::Drain(std::chrono::milliseconds limit) { return loop_->Drain(limit); }
QueueDepth Batcher::depth() const { return loop_->depth(); }

}  // namespace hyperserve
