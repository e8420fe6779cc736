// A client of HTTP/2 that keeps no rule but flow control: it sends half a request, headers without
// end, or reads no reply. It calls from 127.0.0.2. One connection; one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace hyperserve {

class RawHttp2 {
 public:
  // Connects to "host:port" and says hello. `window`: bytes that the server may send on each stream
  // unread; 0: none.
  RawHttp2(const std::string& address, uint32_t window);
  RawHttp2(const RawHttp2&) = delete;
  RawHttp2& operator=(const RawHttp2&) = delete;
  ~RawHttp2();

  // Begins a gRPC call of this path, "/hyperserve.v1.Hyperserve/Solve", on a stream of its own.
  void BeginCall(const std::string& path);
  // Sends a part of the last call's body, as fast as the server opens its windows. Returns how many
  // bytes it took: fewer where it opened none for `patience_ms`, or the connection is closed.
  size_t SendBody(std::string_view bytes, bool last, int patience_ms);
  // Resets the last call's stream.
  void ResetCall();
  // A whole gRPC message of `bytes_in_all`, of which these are the first bytes.
  static std::string MessageHead(uint32_t bytes_in_all);
  // Begins a call whose headers go on, `bytes` of them, and do not end. Returns how many were
  // taken.
  enum class Flood { kManyHeaders, kOneLongHeader, kOneLongNumber };
  size_t FloodHeaders(Flood kind, size_t bytes, int patience_ms);
  // Begins a call whose header `name` has this value, followed by 12 KiB of others.
  void BeginOddCall(const std::string& name, const std::string& value);
  bool closed() const { return closed_; }

 private:
  bool Send(std::string_view bytes, int patience_ms);
  bool SendFrame(uint8_t type, uint8_t flags, uint32_t stream, std::string_view payload,
                 int patience_ms);
  // Reads what has come, waiting up to `patience_ms` for something; false: nothing came.
  bool Receive(int patience_ms);
  void Take(uint8_t type, uint8_t flags, uint32_t stream, std::string_view payload);

  int fd_ = -1;
  bool closed_ = false;
  uint32_t stream_ = 0;  // the last call's
  int64_t connection_window_ = 65535, initial_window_ = 65535;
  std::map<uint32_t, int64_t> windows_;  // of streams
  std::string received_;
};

}  // namespace hyperserve
