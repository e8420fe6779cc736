// The part of HTTP/1.1 that probes and scrapes need: a request line, headers that are skipped, a
// reply with a length. Pure.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace hyperserve {

// What a handler returns; AnswerHttp adds the headers.
struct HttpReply {
  int status = 200;
  std::string body;
  std::string content_type = "text/plain; charset=utf-8";
};

// A handler by path, for GET and HEAD; other methods are answered 405, other paths 404.
using HttpHandlers = std::map<std::string, std::function<HttpReply()>>;

inline constexpr size_t kHttpRequestBytesMax = 64 << 10;

// Has the head of a request arrived, to its empty line?
bool HeadIsComplete(std::string_view received);

// The whole reply, headers and body, to the request that `received` begins with. Calls the handler
// of the path. What is no request of HTTP/1.x is answered 400. Headers are ignored, ranges among
// them: a reply is always whole. A query behind the path is ignored. Every reply closes its
// connection.
std::string AnswerHttp(std::string_view received, const HttpHandlers& handlers);

// The reply to a request that did not arrive whole in time or in kHttpRequestBytesMax.
std::string RefuseHttp();

}  // namespace hyperserve
