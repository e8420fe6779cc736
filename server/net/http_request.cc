#include "server/net/http_request.h"

#include <optional>

#include "absl/strings/str_cat.h"

namespace hyperserve {
namespace {

struct RequestLine {
  std::string_view method, path;
};

std::optional<RequestLine> ParseRequestLine(std::string_view received) {
  std::string_view line = received.substr(0, received.find('\n'));
  if (line.ends_with('\r')) line.remove_suffix(1);
  const size_t first = line.find(' '), last = line.rfind(' ');
  if (first == std::string_view::npos || first == 0 || last == first) return std::nullopt;
  std::string_view target = line.substr(first + 1, last - first - 1);
  if (!line.substr(last + 1).starts_with("HTTP/1.") || !target.starts_with('/') ||
      target.find(' ') != std::string_view::npos) {
    return std::nullopt;
  }
  target = target.substr(0, target.find('?'));
  return RequestLine{.method = line.substr(0, first), .path = target};
}

std::string_view ReasonOf(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    default:
      return "Service Unavailable";
  }
}

enum class Body { kSent, kLeftOut };

std::string Print(const HttpReply& reply, Body body, std::string_view extra_header = "") {
  return absl::StrCat("HTTP/1.1 ", reply.status, " ", std::string(ReasonOf(reply.status)),
                      "\r\nContent-Type: ", reply.content_type,
                      "\r\nContent-Length: ", reply.body.size(), "\r\nConnection: close\r\n",
                      std::string(extra_header), "\r\n", body == Body::kSent ? reply.body : "");
}

bool IsMethod(std::string_view text) {
  return text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ") == std::string_view::npos &&
         text.size() <= 16;
}

}  // namespace

bool HeadIsComplete(std::string_view received) {
  return received.find("\r\n\r\n") != std::string_view::npos ||
         received.find("\n\n") != std::string_view::npos;
}

std::string AnswerHttp(std::string_view received, const HttpHandlers& handlers) {
  const auto request = ParseRequestLine(received);
  if (!request || !IsMethod(request->method)) return RefuseHttp();
  const Body body = request->method == "HEAD" ? Body::kLeftOut : Body::kSent;
  const auto handler = handlers.find(std::string(request->path));
  if (handler == handlers.end()) return Print({.status = 404, .body = "no such page\n"}, body);
  if (request->method != "GET" && request->method != "HEAD") {
    return Print(
        {.status = 405,
         .body = absl::StrCat(std::string(request->method), " is not taken here; use GET\n")},
        body, "Allow: GET, HEAD\r\n");
  }
  return Print(handler->second(), body);
}

std::string RefuseHttp() {
  return Print({.status = 400, .body = "no whole request of HTTP/1.1 arrived\n"}, Body::kSent);
}

}  // namespace hyperserve
