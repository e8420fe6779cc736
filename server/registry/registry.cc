#include "server/registry/registry.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status.h"
#include "core/engine/engine.h"
#include "server/clock/clock.h"
#include "server/registry/catalog.h"
#include "server/registry/gate.h"
#include "server/registry/shelf.h"

namespace hyperserve {
namespace {

using Done = std::function<void(absl::StatusOr<PublishOutcome>)>;

using TimePoint = Clock::TimePoint;

// Time between two attempts to destroy what was swapped out, while there is any.
constexpr std::chrono::milliseconds kRetiredPoll(100);
// The pause of a registry that does not poll its folders. Any finite time will do.
constexpr double kIdleSeconds = 3600;
// The registry's thread gives way to the solvers: 10 of at most 19 on Linux.
constexpr int kNiceness = 10;

// While requests are served, an examination pauses this many times as long as it works.
constexpr int kPausePerWork = 4;
constexpr std::chrono::microseconds kBusyPoll(200);

// The higher goes first.
enum class Urgency { kFolder, kPublish, kRollback };

}  // namespace

class Registry::Impl {
 public:
  Impl(RegistryOptions options, std::function<void(const Event&)> on_event);
  ~Impl();

  absl::Status Open();
  struct Job {
    Urgency urgency;
    std::function<absl::StatusOr<PublishOutcome>()> run;
    Patience patience;
    Done done;
  };
  // Queues the job for the registry's thread, or calls its `done` with kResourceExhausted.
  void Enqueue(Job job);
  Catalog& catalog() { return catalog_; }

 private:
  void Run(std::promise<absl::Status> opened);
  void RunJob(Job job);
  absl::Status GoOn();
  void GiveWayToServing();
  bool MoreUrgentWaits();
  absl::StatusOr<std::vector<GateMeasurement>> Measure(const GateInput& input);
  std::optional<Job> NextJob(TimePoint wake);
  absl::Status SetUpGate();

  const RegistryOptions options_;      // fixed after construction
  std::atomic<bool> stopping_{false};  // set once, under mutex_; the gate reads it without

  // Guarded by mutex_.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;

  // Touched by the registry's thread only, except the functions of the catalog that say otherwise.
  Patience patience_;  // of the caller of the job under way; endless where there is none
  Urgency urgency_ = Urgency::kFolder;        // of the work under way
  bool gave_way_ = false;                     // true: GoOn ended it for something more urgent
  TimePoint resumed_;                         // since when it works without a pause
  TimePoint measured_by_ = TimePoint::max();  // when the measurement under way must have ended
  std::unique_ptr<EngineGate> gate_;
  Shelf::Services services_;
  Catalog catalog_;

  std::thread thread_;  // last: it uses all members above
};

Registry::Impl::Impl(RegistryOptions options, std::function<void(const Event&)> on_event)
    : options_(std::move(options)), catalog_(&options_, &services_, std::move(on_event)) {}

Registry::Impl::~Impl() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

absl::Status Registry::Impl::Open() {
  std::promise<absl::Status> opened;
  std::future<absl::Status> result = opened.get_future();
  thread_ = std::thread([this, opened = std::move(opened)]() mutable { Run(std::move(opened)); });
  return result.get();
}

void Registry::Impl::Run(std::promise<absl::Status> opened) {
  // On Linux this is the priority of this thread alone. If it fails, an examination slows the
  // solvers.
  (void)setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNiceness);
  absl::Status status = SetUpGate();
  if (status.ok()) status = catalog_.LoadAll();
  const bool usable = status.ok();
  opened.set_value(std::move(status));
  const bool polls = options_.poll_seconds > 0;
  const auto pause = std::chrono::duration_cast<TimePoint::duration>(
      std::chrono::duration<double>(polls ? options_.poll_seconds : kIdleSeconds));
  TimePoint next_look = Clock::Real().Now() + pause;
  bool retired = true;
  while (usable && !stopping_) {
    const TimePoint now = Clock::Real().Now();
    const TimePoint wake = retired ? std::min(next_look, now + kRetiredPoll) : next_look;
    if (std::optional<Job> job = NextJob(wake)) RunJob(*std::move(job));
    if (Clock::Real().Now() >= next_look && !stopping_) {
      if (polls) catalog_.LookAtFolders();
      next_look = Clock::Real().Now() + pause;
    }
    retired = catalog_.DropUnpinned();
  }
  std::deque<Job> left;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    left.swap(jobs_);
  }
  for (Job& job : left) RunJob(std::move(job));  // answers kUnavailable
}

void Registry::Impl::RunJob(Job job) {
  patience_ = job.patience;
  urgency_ = job.urgency;
  gave_way_ = false;
  const absl::Status wanted = GoOn();
  const absl::StatusOr<PublishOutcome> outcome = wanted.ok() ? job.run() : wanted;
  const bool again = gave_way_ && absl::IsAborted(outcome.status());
  patience_ = {};  // its function may be invalid once the call is answered
  urgency_ = Urgency::kFolder;
  gave_way_ = false;
  if (!again) {
    job.done(outcome);
    return;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  jobs_.push_front(std::move(job));
}

// OK while the work under way is still wanted, else the answer for its caller.
absl::Status Registry::Impl::GoOn() {
  const bool ending = stopping_ || (options_.ending && options_.ending());
  const absl::Status why = ending ? absl::UnavailableError("the server is shutting down")
                                  : patience_.Left(Clock::Real().Now());
  if (why.ok()) {
    gave_way_ = MoreUrgentWaits();
    return gave_way_ ? absl::AbortedError("something more urgent goes first; it is tried again")
                     : absl::OkStatus();
  }
  return {why.code(), absl::StrCat(why.message(), "; nothing was changed")};
}

// Between two evaluations of f: a pause while requests are served, but not without end, since under
// steady load an examination must end too.
void Registry::Impl::GiveWayToServing() {
  const TimePoint now = Clock::Real().Now();
  const TimePoint until = now + kPausePerWork * (now - resumed_);
  while (options_.busy && options_.busy() && Clock::Real().Now() < until && GoOn().ok()) {
    std::this_thread::sleep_for(kBusyPoll);
  }
  resumed_ = Clock::Real().Now();
  // The pause is no fault of the candidate.
  if (measured_by_ != TimePoint::max()) measured_by_ += resumed_ - now;
}

// The next job; nullopt: none came before `wake`, or the registry ends.
std::optional<Registry::Impl::Job> Registry::Impl::NextJob(TimePoint wake) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_until(lock, wake, [this] { return stopping_ || !jobs_.empty(); });
  if (stopping_ || jobs_.empty()) return std::nullopt;
  const auto most = std::max_element(
      jobs_.begin(), jobs_.end(), [](const Job& a, const Job& b) { return a.urgency < b.urgency; });
  Job job = std::move(*most);
  jobs_.erase(most);
  return job;
}

bool Registry::Impl::MoreUrgentWaits() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::any_of(jobs_.begin(), jobs_.end(),
                     [this](const Job& job) { return job.urgency > urgency_; });
}

void Registry::Impl::Enqueue(Job job) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto waiting = std::count_if(jobs_.begin(), jobs_.end(),
                                       [&](const Job& one) { return one.urgency == job.urgency; });
    if (waiting < options_.publish_queue_limit) {
      jobs_.push_back(std::move(job));
      changed_.notify_all();
      return;
    }
  }
  job.done(absl::ResourceExhaustedError(
      absl::StrCat(options_.publish_queue_limit, " others wait already; try again later")));
}

absl::Status Registry::Impl::SetUpGate() {
  services_ = {.measure = options_.measure,
               .go_on = [this] { return GoOn(); },
               .gave_way = [this] { return gave_way_; },
               .margin = options_.gate_margin,
               .read_only = options_.read_only};
  if (options_.warm) {
    services_.warm = [this](const WarmUpSubject& subject) {
      resumed_ = Clock::Real().Now();
      return options_.warm(subject, [this] {
        GiveWayToServing();
        return !GoOn().ok();
      });
    };
  }
  if (services_.measure) return absl::OkStatus();
  gate_ = std::make_unique<EngineGate>(options_.runtime, [this] {
    GiveWayToServing();
    return !GoOn().ok() || Clock::Real().Now() >= measured_by_;
  });
  services_.measure = [this](const GateInput& input) { return Measure(input); };
  return absl::OkStatus();
}

absl::StatusOr<std::vector<GateMeasurement>> Registry::Impl::Measure(const GateInput& input) {
  const double macs = ExaminationMacs(input);
  if (macs > options_.examination_macs_max) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "its examination takes %.2g MACs, more than examination_macs_max = %.2g: claim fewer or "
        "smaller steps, or send a smaller probe",
        macs, options_.examination_macs_max));
  }
  resumed_ = Clock::Real().Now();
  measured_by_ = resumed_ + std::chrono::duration_cast<TimePoint::duration>(
                                std::chrono::duration<double>(options_.examination_seconds_max));
  absl::StatusOr<std::vector<GateMeasurement>> measured = gate_->Measure(input);
  const bool late = Clock::Real().Now() >= std::exchange(measured_by_, TimePoint::max());
  if (!late || !absl::IsCancelled(measured.status()) || !GoOn().ok()) return measured;
  return absl::FailedPreconditionError(absl::StrFormat(
      "its examination took longer than examination_seconds_max = %g: claim fewer or smaller "
      "steps, or send a smaller probe",
      options_.examination_seconds_max));
}

absl::StatusOr<std::unique_ptr<Registry>> Registry::Open(
    RegistryOptions options, std::function<void(const Event&)> on_event) {
  auto impl = std::make_unique<Impl>(std::move(options), std::move(on_event));
  HS_RETURN_IF_ERROR(impl->Open());
  return std::unique_ptr<Registry>(new Registry(std::move(impl)));
}

Registry::Registry(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Registry::~Registry() = default;

std::vector<std::shared_ptr<const ServedModel>> Registry::List() const {
  return impl_->catalog().List();
}

absl::StatusOr<std::shared_ptr<const ServedModel>> Registry::Pin(std::string_view model) const {
  return impl_->catalog().Pin(model);
}

void Registry::Publish(PublishAsk ask, Patience patience, Done done) {
  impl_->Enqueue(
      {.urgency = Urgency::kPublish,
       .run = [catalog = &impl_->catalog(), ask = std::move(ask)] { return catalog->Publish(ask); },
       .patience = std::move(patience),
       .done = std::move(done)});
}

void Registry::Rollback(std::string model, std::string method, int64_t generation,
                        Patience patience, Done done) {
  impl_->Enqueue(
      {.urgency = Urgency::kRollback,
       .run = [catalog = &impl_->catalog(), model = std::move(model), method = std::move(method),
               generation] { return catalog->Rollback(model, method, generation); },
       .patience = std::move(patience),
       .done = std::move(done)});
}

void Registry::LoadModel(std::string model, Patience patience,
                         std::function<void(absl::Status)> done) {
  impl_->Enqueue({.urgency = Urgency::kPublish,
                  .run = [catalog = &impl_->catalog(),
                          model = std::move(model)]() -> absl::StatusOr<PublishOutcome> {
                    HS_RETURN_IF_ERROR(catalog->Load(model));
                    return PublishOutcome();
                  },
                  .patience = std::move(patience),
                  .done = [done = std::move(done)](
                              const absl::StatusOr<PublishOutcome>& end) { done(end.status()); }});
}

void Registry::UnloadModel(std::string model, Patience patience,
                           std::function<void(absl::Status)> done) {
  impl_->Enqueue({.urgency = Urgency::kRollback,
                  .run = [catalog = &impl_->catalog(),
                          model = std::move(model)]() -> absl::StatusOr<PublishOutcome> {
                    HS_RETURN_IF_ERROR(catalog->Unload(model));
                    return PublishOutcome();
                  },
                  .patience = std::move(patience),
                  .done = [done = std::move(done)](
                              const absl::StatusOr<PublishOutcome>& end) { done(end.status()); }});
}

}  // namespace hyperserve
