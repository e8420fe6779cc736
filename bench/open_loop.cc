#include "bench/open_loop.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

namespace hyperserve {
namespace {

using Clock = std::chrono::steady_clock;

Clock::duration Duration(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

double ClosedLoop(const BeginCall& begin, int callers, double seconds) {
  std::atomic<int64_t> answers = 0;
  const Clock::time_point end = Clock::now() + Duration(seconds);
  std::vector<std::thread> threads;
  for (int i = 0; i < callers; ++i) {
    threads.emplace_back([&] {
      while (Clock::now() < end) {
        grpc::ClientContext context;
        std::promise<bool> answered;
        begin(&context, [&](const grpc::Status& status) { answered.set_value(status.ok()); });
        if (answered.get_future().get()) ++answers;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return static_cast<double>(answers) / seconds;
}

std::vector<SeenCall> OpenLoop(const BeginCall& begin, double rate, double seconds,
                               std::chrono::milliseconds deadline) {
  std::mt19937_64 random(7);
  std::exponential_distribution<double> gap(rate);
  const Clock::time_point start = Clock::now();
  std::vector<SeenCall> seen;
  std::mutex mutex;
  std::atomic<int64_t> waiting = 0;
  for (double at = gap(random); at < seconds; at += gap(random)) {
    std::this_thread::sleep_until(start + Duration(at));
    const auto context = std::make_shared<grpc::ClientContext>();
    context->set_deadline(std::chrono::system_clock::now() + deadline);
    const Clock::time_point begun = Clock::now();
    ++waiting;
    begin(context.get(), [&, context, begun](const grpc::Status& status) {
      const std::chrono::duration<double> took = Clock::now() - begun;
      {
        const std::lock_guard lock(mutex);
        seen.push_back({begun, took.count(), status.error_code()});
      }
      --waiting;
    });
  }
  while (waiting > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return seen;
}

double Percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

}  // namespace hyperserve
