// Bytes of replies that are on their way. The batcher counts the inputs and outputs of a request
// until it is answered; from then on the reply counts here until its client has read it. Otherwise
// a client that reads nothing could let any number of replies pile up.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"

namespace hyperserve {

// Thread-safe.
class ReplyLedger {
 public:
  // Counts bytes as long as it lives; at most as long as the ledger. Moves, never copies.
  class Hold {
   public:
    Hold() = default;
    Hold(Hold&&) = default;
    Hold& operator=(Hold&& other) noexcept;
    ~Hold();

   private:
    friend class ReplyLedger;
    struct Entry {
      ReplyLedger* ledger;
      std::string peer;
      int64_t bytes;
    };
    explicit Hold(Entry entry) : entry_(std::make_unique<Entry>(std::move(entry))) {}
    std::unique_ptr<Entry> entry_;
  };

  // Never refuses: the reply is there already. `peer` is the client's address without its port.
  [[nodiscard]] Hold Take(const std::string& peer, int64_t bytes);

  // kResourceExhausted: replies of `bytes_max` in all, or of half of that for this peer, are not
  // read yet, so that no more work should be done for it.
  absl::Status Check(const std::string& peer, int64_t bytes_max) const;

  // Of all clients, for the metrics.
  int64_t bytes() const;

 private:
  void Give(const std::string& peer, int64_t bytes);

  mutable std::mutex mutex_;
  int64_t bytes_ = 0;                       // guarded by mutex_
  std::map<std::string, int64_t> of_peer_;  // guarded by mutex_
};

}  // namespace hyperserve
