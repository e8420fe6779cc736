#include "server/registry/shelf_snapshot.h"

#include <algorithm>
#include <iterator>

namespace hyperserve {

std::vector<int64_t> StartOrder(const ShelfSnapshot& snapshot) {
  std::vector<int64_t> order;
  if (snapshot.active.has_value()) order.push_back(*snapshot.active);
  for (auto it = snapshot.generations.rbegin(); it != snapshot.generations.rend(); ++it) {
    if (*it == snapshot.active) continue;
    const auto verdict = snapshot.verdicts.find(*it);
    const bool untried = verdict == snapshot.verdicts.end();
    if (untried ? !snapshot.active.has_value() : verdict->second.passed) order.push_back(*it);
  }
  return order;
}

std::optional<int64_t> NextUntried(const ShelfSnapshot& snapshot) {
  const int64_t oldest = OldestKept(snapshot.verdicts);
  for (const int64_t number : snapshot.generations) {
    if (number > oldest && !snapshot.verdicts.contains(number)) return number;
  }
  return std::nullopt;
}

std::vector<int64_t> PreviousOrder(const ShelfSnapshot& snapshot) {
  std::vector<int64_t> order;
  for (const int64_t number : snapshot.generations) {
    const auto verdict = snapshot.verdicts.find(number);
    const bool passed = verdict != snapshot.verdicts.end() && verdict->second.passed;
    if (passed && number < snapshot.active.value_or(0)) order.push_back(number);
  }
  std::reverse(order.begin(), order.end());
  return order;
}

int64_t OldestKept(const std::map<int64_t, Verdict>& verdicts) {
  if (verdicts.size() < kVerdictsKept) return 0;
  return std::next(verdicts.rbegin(), kVerdictsKept - 1)->first;
}

void ForgetOld(const std::vector<int64_t>& served, std::map<int64_t, Verdict>& verdicts) {
  const int64_t oldest = OldestKept(verdicts);
  std::erase_if(verdicts, [&](const auto& entry) {
    return entry.first < oldest && std::ranges::find(served, entry.first) == served.end();
  });
}

}  // namespace hyperserve
