#include "server/metrics/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>

namespace hyperserve {
namespace {

using testing::HasSubstr;

TEST(HttpServer, AnswersByPath) {
  auto server = HttpServer::Start(
      "127.0.0.1", 0,
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
  auto server =
      HttpServer::Start("127.0.0.1", 0, {{"/livez", [] { return HttpReply{.body = "alive\n"}; }}});
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
  auto first = HttpServer::Start("127.0.0.1", 0, {});
  ASSERT_TRUE(first.ok());
  const auto second = HttpServer::Start("127.0.0.1", (*first)->port(), {});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(std::to_string((*first)->port())));
}

TEST(HttpServer, AnIdleConnectionBlocksNobody) {
  auto server =
      HttpServer::Start("127.0.0.1", 0, {{"/livez", [] { return HttpReply{.body = "alive\n"}; }}});
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

}  // namespace
}  // namespace hyperserve
