#include "server/rpc/ledgers/reply_ledger.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace hyperserve {

ReplyLedger::Hold& ReplyLedger::Hold::operator=(Hold&& other) noexcept {
  if (this != &other) {
    const Hold before(std::move(*this));  // gives its bytes back now
    entry_ = std::move(other.entry_);
  }
  return *this;
}

ReplyLedger::Hold::~Hold() {
  if (entry_) entry_->ledger->Give(entry_->peer, entry_->bytes);
}

ReplyLedger::Hold ReplyLedger::Take(const std::string& peer, int64_t bytes) {
  // An account ends at 0 bytes, so a reply without any, like UnloadModel's, has none.
  if (bytes == 0) return {};
  const std::lock_guard lock(mutex_);
  bytes_ += bytes;
  of_peer_[peer] += bytes;
  return Hold({.ledger = this, .peer = peer, .bytes = bytes});
}

absl::Status ReplyLedger::Check(const std::string& peer, int64_t bytes_max) const {
  const std::lock_guard lock(mutex_);
  const auto own = of_peer_.find(peer);
  const int64_t bytes_of_peer = own == of_peer_.end() ? 0 : own->second;
  if (bytes_of_peer <= bytes_max / 2 && bytes_ <= bytes_max) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("replies of ", bytes_of_peer, " bytes to this client and ", bytes_,
                   " in all are not read yet (queue_bytes_max = ", bytes_max,
                   ", half of it for one client); read them, then try again"));
}

int64_t ReplyLedger::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

void ReplyLedger::Give(const std::string& peer, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  bytes_ -= bytes;
  const auto own = of_peer_.find(peer);
  own->second -= bytes;
  if (own->second == 0) of_peer_.erase(own);
}

}  // namespace hyperserve
