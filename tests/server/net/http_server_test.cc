#include "server/net/http_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/net/http_request.h"

namespace hyperserve {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;
using testing::StartsWith;
using SteadyClock = std::chrono::steady_clock;

constexpr std::string_view kStarted = "GET /livez HTTP/1.1\r\nX: ";

// A client that sends raw bytes, as no library would.
class RawClient {
 public:
  explicit RawClient(int port) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(static_cast<uint16_t>(port))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  ~RawClient() { close(socket_); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool Send(std::string_view bytes) {
    return send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }
  // The bytes that arrive within `limit`, at most a few KiB; "" at the end of the connection too.
  std::string Receive(milliseconds limit) {
    pollfd ready{.fd = socket_, .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, static_cast<int>(limit.count())) <= 0) return "";
    std::string bytes(4096, '\0');
    bytes.resize(std::max<ssize_t>(recv(socket_, bytes.data(), bytes.size(), 0), 0));
    return bytes;
  }

 private:
  const int socket_;
};

absl::StatusOr<std::unique_ptr<HttpServer>> StartAlive(const std::string& host = "127.0.0.1") {
  return HttpServer::Start({.host = host},
                           {{"/livez", [] { return HttpReply{.body = "alive\n"}; }}});
}

TEST(HttpServer, AnswersByPath) {
  auto server = HttpServer::Start(
      {.host = "127.0.0.1"},
      {{"/livez", [] { return HttpReply{.body = "alive\n"}; }},
       {"/readyz", [] { return HttpReply{.status = 503, .body = "loading\n"}; }}});
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_GT((*server)->port(), 0);
  httplib::Client client("127.0.0.1", (*server)->port());
  const auto alive = client.Get("/livez");
  ASSERT_TRUE(alive);
  EXPECT_EQ(alive->status, 200);
  EXPECT_EQ(alive->body, "alive\n");
  EXPECT_EQ(alive->get_header_value("Content-Type"), "text/plain; charset=utf-8");
  EXPECT_EQ(client.Get("/readyz")->status, 503);
  EXPECT_EQ(client.Get("/other")->status, 404);
  EXPECT_EQ(client.Post("/other", "x", "text/plain")->status, 404);
}

TEST(HttpServer, OtherMethodsAreNotAllowed) {
  auto server = StartAlive();
  ASSERT_TRUE(server.ok());
  httplib::Client client("127.0.0.1", (*server)->port());
  const auto head = client.Head("/livez");
  EXPECT_EQ(head->status, 200);
  EXPECT_EQ(head->body, "");
  for (const char* method : {"POST", "PUT", "PATCH", "DELETE", "OPTIONS"}) {
    SCOPED_TRACE(method);
    httplib::Request request;
    request.method = method;
    request.path = "/livez";
    request.body = "x";
    const auto reply = client.send(request);
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->status, 405);
    EXPECT_EQ(reply->get_header_value("Allow"), "GET, HEAD");
    EXPECT_EQ(reply->body, std::string(method) + " is not taken here; use GET\n");
  }
}

TEST(HttpServer, TakenPortIsAnErrorInWords) {
  auto first = HttpServer::Start({.host = "127.0.0.1"}, {});
  ASSERT_TRUE(first.ok());
  const auto second = HttpServer::Start({.host = "127.0.0.1", .port = (*first)->port()}, {});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(std::to_string((*first)->port())));
}

TEST(HttpServer, AnIdleConnectionBlocksNobody) {
  auto server = StartAlive();
  ASSERT_TRUE(server.ok());
  std::vector<std::unique_ptr<httplib::Client>> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(std::make_unique<httplib::Client>("127.0.0.1", (*server)->port()));
    clients.back()->set_keep_alive(true);
    clients.back()->set_read_timeout(2);
    const auto reply = clients.back()->Get("/livez");
    ASSERT_TRUE(reply) << "client " << i;
    EXPECT_EQ(reply->status, 200);
  }
}

TEST(HttpServer, AFewSlowClientsDelayNobody) {
  auto server = StartAlive();
  ASSERT_TRUE(server.ok());
  std::vector<std::unique_ptr<RawClient>> slow;
  for (int i = 0; i < 6; ++i) {
    slow.push_back(std::make_unique<RawClient>((*server)->port()));
    if (i % 2 == 0) {  // the others stay silent
      ASSERT_TRUE(slow.back()->Send(kStarted));
    }
  }
  for (int probe = 0; probe < 5; ++probe) {
    httplib::Client client("127.0.0.1", (*server)->port());
    client.set_read_timeout(1);
    const auto reply = client.Get("/livez");
    ASSERT_TRUE(reply) << "probe " << probe;
    EXPECT_EQ(reply->status, 200);
    for (int i = 0; i < 6; i += 2) EXPECT_TRUE(slow[i]->Send("x"));
  }
}

TEST(HttpServer, AThousandSilentClientsDelayNobody) {
  auto server = StartAlive();
  ASSERT_TRUE(server.ok());
  std::vector<std::unique_ptr<RawClient>> silent;
  for (int i = 0; i < 1000; ++i) {
    silent.push_back(std::make_unique<RawClient>((*server)->port()));
    if (i % 2 == 0) (void)silent.back()->Send(kStarted);
  }
  for (int probe = 0; probe < 5; ++probe) {
    httplib::Client client("127.0.0.1", (*server)->port());
    client.set_read_timeout(1);
    const auto reply = client.Get("/livez");
    ASSERT_TRUE(reply) << "probe " << probe;
    EXPECT_EQ(reply->status, 200);
  }
}

TEST(HttpServer, ARequestThatDripsIsEnded) {
  auto server = StartAlive();
  ASSERT_TRUE(server.ok());
  RawClient client((*server)->port());
  ASSERT_TRUE(client.Send(kStarted));
  const auto limit = SteadyClock::now() + seconds(10);
  std::string reply;
  while (reply.empty() && SteadyClock::now() < limit && client.Send("x")) {
    reply = client.Receive(milliseconds(100));
  }
  EXPECT_LT(SteadyClock::now(), limit);
  EXPECT_THAT(reply, StartsWith("HTTP/1.1 400"));
}

TEST(HttpServer, ARequestWithoutEndIsEnded) {
  auto server = StartAlive();
  ASSERT_TRUE(server.ok());
  RawClient client((*server)->port());
  ASSERT_TRUE(client.Send(kStarted));
  const std::string kilobyte(1024, 'x');
  int sent = 0;
  while (sent < 100 << 10 && client.Send(kilobyte)) ++sent;
  EXPECT_LT(sent, 100 << 10);
}

TEST(HttpServer, AnAnswerThatNobodyReadsIsGivenUp) {
  const std::string large(16 << 20, 'x');  // more than the sockets hold
  auto server = HttpServer::Start({.host = "127.0.0.1"},
                                  {{"/large", [&] { return HttpReply{.body = large}; }}});
  ASSERT_TRUE(server.ok());
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(std::make_unique<RawClient>((*server)->port()));
    ASSERT_TRUE(clients.back()->Send("GET /large HTTP/1.1\r\n\r\n"));
  }
  httplib::Client other("127.0.0.1", (*server)->port());
  other.set_read_timeout(60);  // 2 s, and what a sanitizer adds
  const auto reply = other.Get("/other");
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 404);
}

TEST(HttpServer, EndsAtOnceBesideSlowClients) {
  auto server = StartAlive();
  ASSERT_TRUE(server.ok());
  std::vector<std::unique_ptr<RawClient>> slow;
  for (int i = 0; i < 40; ++i) {
    slow.push_back(std::make_unique<RawClient>((*server)->port()));
    ASSERT_TRUE(slow.back()->Send(kStarted));
  }
  EXPECT_EQ(slow[0]->Receive(milliseconds(100)), "");
  const auto start = SteadyClock::now();
  server->reset();
  EXPECT_LT(SteadyClock::now() - start, seconds(3));
}

TEST(HttpServer, TakesAnAddressInBrackets) {
  const auto server = StartAlive("[::1]");
  if (!server.ok()) GTEST_SKIP() << "no IPv6 here: " << server.status();
  httplib::Client client("::1", (*server)->port());
  const auto reply = client.Get("/livez");
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 200);
}

}  // namespace
}  // namespace hyperserve
