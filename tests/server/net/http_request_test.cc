#include "server/net/http_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hyperserve {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::string Answer(const std::string& head) {
  return AnswerHttp(head, {{"/page", [] { return HttpReply{.body = "0123456789"}; }},
                           {"/loading", [] { return HttpReply{.status = 503, .body = "no"}; }}});
}

TEST(HttpRequest, ARequestLineDecides) {
  struct Case {
    std::string head, status;
  };
  const std::vector<Case> cases = {
      {"GET /page HTTP/1.1\r\n\r\n", "200 OK"},
      {"GET /page HTTP/1.0\n\n", "200 OK"},
      {"GET /page?x=1 HTTP/1.1\r\n\r\n", "200 OK"},
      {"HEAD /page HTTP/1.1\r\n\r\n", "200 OK"},
      {"GET /loading HTTP/1.1\r\n\r\n", "503 Service Unavailable"},
      {"GET /other HTTP/1.1\r\n\r\n", "404 Not Found"},
      {"GET /page/ HTTP/1.1\r\n\r\n", "404 Not Found"},
      {"POST /page HTTP/1.1\r\n\r\n", "405 Method Not Allowed"},
      {"GET page HTTP/1.1\r\n\r\n", "400 Bad Request"},
      {"GET /page HTTP/2\r\n\r\n", "400 Bad Request"},
      {"GET  /page HTTP/1.1\r\n\r\n", "400 Bad Request"},
      {"get /page HTTP/1.1\r\n\r\n", "400 Bad Request"},
      {" /page HTTP/1.1\r\n\r\n", "400 Bad Request"},
      {"GET HTTP/1.1\r\n\r\n", "400 Bad Request"},
      {"\r\n\r\n", "400 Bad Request"},
      {std::string("PRI * HTTP/2.0\r\n\r\n"), "400 Bad Request"},
  };
  for (const Case& one : cases) {
    EXPECT_THAT(Answer(one.head), StartsWith("HTTP/1.1 " + one.status + "\r\n")) << one.head;
  }
}

TEST(HttpRequest, RangesAreIgnored) {
  std::string head = "GET /page HTTP/1.1\r\nRange: bytes=0-9";
  for (int i = 0; i < 3000; ++i) head += ",0-9";
  const std::string answer = Answer(head + "\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\n0123456789"));
  EXPECT_LT(answer.size(), 300u);
}

TEST(HttpRequest, AHeadHasTheHeadersAlone) {
  const std::string answer = Answer("HEAD /page HTTP/1.1\r\n\r\n");
  EXPECT_THAT(answer, HasSubstr("Content-Length: 10\r\n"));
  EXPECT_THAT(answer, Not(HasSubstr("0123456789")));
}

TEST(HttpRequest, AnEmptyLineEndsTheHead) {
  EXPECT_FALSE(HeadIsComplete("GET / HTTP/1.1\r\nX: y\r\n"));
  EXPECT_TRUE(HeadIsComplete("GET / HTTP/1.1\r\nX: y\r\n\r\n"));
  EXPECT_TRUE(HeadIsComplete("GET / HTTP/1.1\n\n"));
}

}  // namespace
}  // namespace hyperserve
