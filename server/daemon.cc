#include "server/daemon.h"

#include <grpcpp/health_check_service_interface.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/host_port.h"
#include "core/base/status.h"
#include "core/engine/choose_engine.h"
#include "core/engine/device_memory.h"
#include "core/engine/device_runtime.h"
#include "core/engine/devices.h"
#include "core/io/file.h"
#include "programs/version.h"
#include "server/batching/batcher.h"
#include "server/batching/batcher_options.h"
#include "server/clock/clock.h"
#include "server/event_names.h"
#include "server/listener.h"
#include "server/machine.h"
#include "server/memory_watch.h"
#include "server/metrics/families.h"
#include "server/metrics/log.h"
#include "server/metrics/metrics.h"
#include "server/net/connection_ledger.h"
#include "server/net/descriptors.h"
#include "server/net/http_request.h"
#include "server/net/http_server.h"
#include "server/net/self_probe.h"
#include "server/registry/registry.h"
#include "server/registry/registry_options.h"
#include "server/rpc/call_service.h"
#include "server/rpc/environment.h"
#include "server/rpc/services.h"
#include "server/status_pages.h"
#include "server/warm_up.h"

namespace hyperserve {
namespace {

constexpr std::chrono::seconds kCloseLimit(2);  // for answers on their way to the client
constexpr std::chrono::milliseconds kClosePoll(2);
// After draining, calls are still answered UNAVAILABLE for this long. A call that arrives while
// gRPC closes ends as CANCELLED, which tells its client nothing.
constexpr std::chrono::milliseconds kFarewell{200};
// Health of the daemon as a whole; load balancers ask for the service by its name.
constexpr const char* kDaemonHealthNames[] = {"", "hyperserve.v1.Hyperserve"};
constexpr double kMemoryOfConnections = 0.25, kMemoryOfCalls = 0.125;  // of memory_max

ListenerLimits LimitsOfListener(const Options& options, int64_t connections,
                                const grpc::ResourceQuota& memory) {
  return {.connection_calls_max = options.connection_calls_max,
          .connections = {.all_max = connections, .peer_max = (connections + 1) / 2},
          .connection_idle_max = Milliseconds(options.connection_idle_max_seconds),
          .connection_start_max = Milliseconds(options.connection_start_max_seconds),
          .ping_interval_min = Milliseconds(options.ping_interval_min_seconds),
          .memory = &memory};
}

ServerFacts FactsOf(const Options& options, const std::vector<DeviceInfo>& devices,
                    const DeviceRuntime& runtime) {
  ServerFacts facts{.version = kVersion, .commit = kCommit};
  for (const EngineKind& kind : runtime.engines()) facts.engines.emplace_back(kind.name);
  for (const DeviceInfo& device : devices) {
    facts.devices.push_back({device.name, device.description, device.memory_bytes});
  }
  for (OptionLine& line : OptionLines(options)) {
    facts.limits.push_back({std::move(line.name), std::move(line.value), std::move(line.unit),
                            std::move(line.reason)});
  }
  return facts;
}

std::string WithPort(const std::string& address, int port) {
  return absl::StrCat(address.substr(0, address.rfind(':')), ":", port);
}

}  // namespace

struct Daemon::Parts {
  Parts(const Options& given, std::function<bool()> asked_to_end, std::function<void()> on_fault)
      : options(given), ending(std::move(asked_to_end)), fault(std::move(on_fault)) {}

  absl::Status StartBatcher();
  absl::Status StartListening();
  absl::Status OpenRegistry();
  absl::Status WarmAndTime(const WarmUpSubject& subject, const std::function<bool()>& interrupted);
  absl::Status TellPorts() const;
  void ProbePorts();
  void OnConnectionRefused(std::string_view port, std::string_view limit);
  HttpReply Page();
  bool FinishCalls() const;
  void Close();
  void OnEvent(const Registry::Event& event);
  void OnModelEvent(const Registry::Event& event, const std::string& result);
  void OnBatch(const BatchReport& report);
  void OnDeviceFull(std::string_view device, int64_t rows);
  void OnDeviceLost(std::string_view device, const absl::Status& status);
  void SetHealth(const std::string& name, bool serving) const;

  Options options;  // those in force, from StartBatcher on
  const std::function<bool()> ending;
  const std::function<void()> fault;
  grpc::ResourceQuota memory;  // of all connections
  Metrics metrics;
  RefusedModels refused;
  // Before whatever may hold runs on them. The first one judges candidates and times plans.
  std::vector<std::unique_ptr<DeviceRuntime>> runtimes;
  Environment environment;
  std::unique_ptr<Batcher> batcher;
  const CallService calls = MakeHyperserveService(&environment);
  const CallService admin = MakeAdminService(&environment);
  Listener calls_listener, admin_listener;
  std::unique_ptr<HttpServer> http;
  std::unique_ptr<SelfProbe> probe;
  std::unique_ptr<MemoryWatch> memory_watch;
  bool down = false;
};

absl::Status Daemon::Parts::StartBatcher() {
  const std::vector<DeviceInfo> devices = ListDevices();
  const Machine machine = MachineWith(devices);
  options = InForce(std::move(options), machine);
  environment.limits = LimitsOf(options);
  environment.metrics = &metrics;
  environment.models_folder = options.models;
  environment.clock = &Clock::Real();
  environment.started = Clock::Real().Now();
  metrics.Set(Metric::kBuildInfo, {kVersion, kCommit}, 1);
  SetMemoryFigures(options.memory_max, devices, metrics);
  std::vector<DeviceRuntime*> served;
  for (const std::string& device : DevicesOf(options, machine)) {
    HS_ASSIGN_OR_RETURN(auto runtime, MakeDeviceRuntime(device, StreamPriority::kGreatest));
    BoundMemory(runtime->device(), options.device_memory_max);
    served.push_back(runtimes.emplace_back(std::move(runtime)).get());
  }
  environment.facts = FactsOf(options, devices, *served.front());
  BatcherOptions of_batcher = BatcherOptionsOf(options);
  of_batcher.on_batch = [this](const BatchReport& report) { OnBatch(report); };
  of_batcher.on_device_full = std::bind_front(&Parts::OnDeviceFull, this);
  of_batcher.on_device_lost = std::bind_front(&Parts::OnDeviceLost, this);
  batcher = std::make_unique<Batcher>(of_batcher, served, &Clock::Real());
  environment.batcher = batcher.get();
  return absl::OkStatus();
}

absl::Status Daemon::Parts::StartListening() {
  SetUpGrpc();
  const double arriving = kMemoryOfConnections * options.memory_max;
  memory.Resize(static_cast<size_t>(arriving));
  environment.arrivals.Bound(arriving, options.receive_bytes_max);
  environment.calls.Bound(kMemoryOfCalls * options.memory_max);
  const ConnectionShares shares = SharesOf(RaiseDescriptorLimit());
  const auto listen = [&](const std::string& flag, const std::string& address, int64_t connections,
                          const CallService& service) {
    return Listen(
        flag, address, LimitsOfListener(options, connections, memory),
        [this, flag](std::string_view limit) { OnConnectionRefused(flag, limit); }, service,
        &environment);
  };
  HS_ASSIGN_OR_RETURN(calls_listener,
                      listen("address", options.address, options.connections_max, calls));
  for (const char* name : kDaemonHealthNames) SetHealth(name, false);
  HS_ASSIGN_OR_RETURN(admin_listener,
                      listen("admin_address", options.admin_address, shares.admin, admin));
  HS_ASSIGN_OR_RETURN(const HostPort address, ParseHostPort(options.http_address, /*port_min=*/0));
  HS_ASSIGN_OR_RETURN(
      http, HttpServer::Start({.host = address.host,
                               .port = address.port,
                               .connections_max = static_cast<int>(shares.http)},
                              {{"/metrics", [this] { return Page(); }},
                               {"/livez", [] { return HttpReply{.body = "alive\n"}; }},
                               {"/readyz", [this] { return ReadyPage(environment, refused); }}}));
  return absl::OkStatus();
}

HttpReply Daemon::Parts::Page() {
  const auto set = [this](const char* port, const Listener& listener) {
    metrics.Set(Metric::kConnections, {port}, static_cast<double>(listener.door->connections()));
  };
  set("address", calls_listener);
  set("admin_address", admin_listener);
  for (const auto& runtime : runtimes) SetMemoryInUse(runtime->device(), metrics);
  return MetricsPage(environment, refused);
}

void Daemon::Parts::OnConnectionRefused(std::string_view port, std::string_view limit) {
  metrics.Increment(Metric::kConnectionsRefused, {port, limit});
}

void Daemon::Parts::ProbePorts() {
  const auto port = [](const char* flag, const std::string& address, int real,
                       const std::string& hello) {
    return ProbedPort{
        .name = flag, .host = address.substr(0, address.rfind(':')), .port = real, .hello = hello};
  };
  probe = std::make_unique<SelfProbe>(
      std::vector<ProbedPort>{
          port("address", options.address, calls_listener.port, ""),
          port("admin_address", options.admin_address, admin_listener.port, ""),
          port("http_address", options.http_address, http->port(), "GET /livez HTTP/1.1\r\n\r\n")},
      SelfProbe::Timing{}, [this](const std::string& flag) {
        Log(LogLevel::kError, NewLogLine()
                                  .Add("event", "deaf")
                                  .Add("port", flag)
                                  .Add("message", "the listener no longer answers; ending"));
        fault();
      });
}

absl::Status Daemon::Parts::WarmAndTime(const WarmUpSubject& subject,
                                        const std::function<bool()>& interrupted) {
  const BatchLimits limits{.rows_max = options.batch_rows_max, .macs_max = options.batch_macs_max};
  const absl::Status done = hyperserve::WarmAndTime(
      subject, limits, interrupted, runtimes,
      [this](const auto& errand) { batcher->DoOnSolvers(errand); }, Clock::Real());
  for (const auto& runtime : runtimes) {
    if (batcher->depth().macs == 0) GiveBackMemory(runtime->device());
  }
  return done;
}

absl::Status Daemon::Parts::OpenRegistry() {
  HS_ASSIGN_OR_RETURN(std::unique_ptr<Registry> registry,
                      Registry::Open({.repository = options.models,
                                      .allow_code = AllowedCode(options),
                                      .read_only = options.read_only,
                                      .gate_margin = options.gate_margin,
                                      .poll_seconds = options.poll_seconds,
                                      .runtime = runtimes.front().get(),
                                      .publish_queue_limit = options.publish_queue_max,
                                      .examination_macs_max = options.examination_macs_max,
                                      .examination_seconds_max = options.examination_seconds_max,
                                      .warm =
                                          [this](const WarmUpSubject& subject,
                                                 const std::function<bool()>& interrupted) {
                                            return WarmAndTime(subject, interrupted);
                                          },
                                      .busy = [this] { return batcher->depth().macs > 0; },
                                      .ending = ending},
                                     [this](const Registry::Event& event) { OnEvent(event); }));
  const auto models = registry->List();
  environment.set_registry(std::move(registry));
  for (const auto& served : models) SetHealth("model/" + served->name, true);
  for (const char* name : kDaemonHealthNames) SetHealth(name, true);
  return absl::OkStatus();
}

void Daemon::Parts::SetHealth(const std::string& name, bool serving) const {
  calls_listener.server->GetHealthCheckService()->SetServingStatus(name, serving);
}

void Daemon::Parts::OnEvent(const Registry::Event& event) {
  const EventNames names = NamesOf(event.kind);
  LogLine line = NewLogLine();
  line.Add("event", names.log).Add("model", event.model);
  if (!event.method.empty()) line.Add("method", event.method);
  if (event.generation > 0) line.Add("generation", event.generation);
  line.Add("source", event.source).Add("message", event.detail);
  Log(names.bad ? LogLevel::kWarn : LogLevel::kInfo, line);
  if (names.of_model) {
    OnModelEvent(event, names.result);
  } else {
    // Drops alpha's parameter: every alpha is a method, so it would make labels unbounded.
    const std::string method = event.method.substr(0, event.method.find('('));
    metrics.Increment(Metric::kPublishResults, {event.model, method, event.source, names.result});
  }
  environment.events.Tell(event);
}

void Daemon::Parts::OnModelEvent(const Registry::Event& event, const std::string& result) {
  metrics.Increment(Metric::kModelChanges, {event.source, result});
  const std::shared_ptr<Registry> registry = environment.registry();  // null at the start
  const bool served = registry != nullptr && registry->Pin(event.model).ok();
  if (event.kind == Registry::Event::Kind::kModelRefused) {
    if (!served) refused.Add({event.model, event.detail});
    return;
  }
  refused.Remove(event.model);
  if (registry != nullptr) SetHealth("model/" + event.model, served);
  if (!served) ForgetModelFigures(event.model, metrics);
}

void Daemon::Parts::OnBatch(const BatchReport& report) {
  metrics.Observe(Metric::kBatchRows, {report.model_label}, static_cast<double>(report.rows));
  metrics.Observe(Metric::kBatchRequests, {report.model_label},
                  static_cast<double>(report.requests));
  metrics.Observe(Metric::kBatchTurns, {report.model_label}, static_cast<double>(report.turns));
}

void Daemon::Parts::OnDeviceFull(std::string_view device, int64_t rows) {
  metrics.Increment(Metric::kDeviceFull, {std::string(device)});
  LogLine line = NewLogLine();
  line.Add("event", "device_full").Add("device", device).Add("rows", rows);
  Log(LogLevel::kWarn, line.Add("message", "they are solved in halves"));
}

// Only a new process gets the device back, so this one ends and its supervisor starts another.
void Daemon::Parts::OnDeviceLost(std::string_view device, const absl::Status& status) {
  Log(LogLevel::kError, NewLogLine()
                            .Add("event", "device_lost")
                            .Add("device", device)
                            .Add("message", std::string(status.message())));
  environment.draining = true;
  calls_listener.server->GetHealthCheckService()->SetServingStatus(false);
  fault();
}

absl::Status Daemon::Parts::TellPorts() const {
  const std::string address = WithPort(options.address, calls_listener.port);
  const std::string admin_address = WithPort(options.admin_address, admin_listener.port);
  const std::string http_address = WithPort(options.http_address, http->port());
  Log(LogLevel::kInfo, NewLogLine()
                           .Add("event", "ready")
                           .Add("address", address)
                           .Add("admin_address", admin_address)
                           .Add("http_address", http_address)
                           .Add("device", options.device)
                           .Add("solvers", options.solvers));
  if (options.ports_file.empty()) return absl::OkStatus();
  const std::string json =
      absl::StrCat("{\"address\": \"", address, "\", \"admin_address\": \"", admin_address,
                   "\", \"http_address\": \"", http_address, "\", \"pid\": ", getpid(), "}\n");
  return Annotate(WriteFileAtomically(options.ports_file, json), "--ports_file");
}

// Waits for the calls that were let in, a stream's to its last chunk. False: the limit came first.
bool Daemon::Parts::FinishCalls() const {
  const Clock::TimePoint limit = Clock::Real().Now() + Milliseconds(options.drain_seconds);
  while (environment.solving_calls > 0 && Clock::Real().Now() < limit) {
    std::this_thread::sleep_for(kClosePoll);
  }
  return environment.solving_calls == 0;
}

// Every call has been answered. gRPC's grace period would last its full length while a connection
// is open, so this counts the calls itself and gives gRPC no grace.
void Daemon::Parts::Close() {
  const Clock::TimePoint limit = Clock::Real().Now() + kCloseLimit;
  while (environment.calls_in_flight > 0 && Clock::Real().Now() < limit) {
    std::this_thread::sleep_for(kClosePoll);
  }
  for (Listener* listener : {&calls_listener, &admin_listener}) listener->Shutdown();
}

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(const Options& options,
                                                      std::function<bool()> ending,
                                                      std::function<void()> fault) {
  std::unique_ptr<Daemon> daemon(
      new Daemon(std::make_unique<Parts>(options, std::move(ending), std::move(fault))));
  Parts& parts = *daemon->parts_;
  Log(LogLevel::kInfo, NewLogLine()
                           .Add("event", "start")
                           .Add("version", kVersion)
                           .Add("commit", kCommit)
                           .Add("models", options.models));
  HS_RETURN_IF_ERROR(parts.StartBatcher());
  HS_RETURN_IF_ERROR(parts.StartListening());
  HS_RETURN_IF_ERROR(parts.OpenRegistry());
  HS_RETURN_IF_ERROR(parts.TellPorts());
  parts.memory_watch =
      std::make_unique<MemoryWatch>(parts.options.memory_max, &parts.environment.memory_full);
  parts.ProbePorts();
  return daemon;
}

Daemon::Daemon(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

Daemon::~Daemon() { Shutdown(); }

void Daemon::Shutdown() {
  Parts& parts = *parts_;
  if (std::exchange(parts.down, true)) return;
  parts.probe.reset();
  parts.environment.draining = true;
  parts.environment.events.End();
  if (parts.calls_listener.server) {
    parts.calls_listener.server->GetHealthCheckService()->SetServingStatus(false);
  }
  if (parts.environment.registry()) {  // else it never let a call in
    Log(LogLevel::kInfo,
        NewLogLine().Add("event", "draining").Add("limit_seconds", parts.options.drain_seconds));
    const bool all = parts.FinishCalls();
    parts.batcher->Drain(std::chrono::milliseconds(0));
    Log(LogLevel::kInfo,
        NewLogLine().Add("event", "drained").Add("all_finished", all ? "true" : "false"));
    std::this_thread::sleep_for(kFarewell);
  }
  parts.environment.set_registry(nullptr);
  parts.Close();
}

}  // namespace hyperserve
