// What the folder of a method says at one moment, and what to serve and try by it. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "core/model/repository/verdicts.h"

namespace hyperserve {

// A hypersolver folder at one moment. The three decisions below are pure functions of it.
struct ShelfSnapshot {
  std::vector<int64_t> generations;     // folders that are there, ascending
  std::map<int64_t, Verdict> verdicts;  // by generation
  std::optional<int64_t> active;        // the number in ACTIVE; nullopt: there is no such file
};

// The generations to try at start, in this order, until one is served. Where ACTIVE names one, it
// is the first, so that a restart undoes no rollback, and the others that passed follow, the
// highest first, for the case that it is damaged. Else all that were not refused, the highest
// first.
std::vector<int64_t> StartOrder(const ShelfSnapshot& snapshot);
// The lowest generation without a verdict, of those above OldestKept; nullopt: all have one.
std::optional<int64_t> NextUntried(const ShelfSnapshot& snapshot);
// The candidates for rollback after a restart: those below ACTIVE that passed, the highest first.
std::vector<int64_t> PreviousOrder(const ShelfSnapshot& snapshot);

// Verdicts are kept of so many generations, the newest: what a thousand swaps leave in memory and
// in VERDICTS.json must not grow.
inline constexpr size_t kVerdictsKept = 100;
// The lowest of the kVerdictsKept highest generations that have a verdict; 0: there are fewer. What
// is below it had its verdict once.
int64_t OldestKept(const std::map<int64_t, Verdict>& verdicts);
// Forgets the verdicts below OldestKept, but those of `served`, which a restart or a rollback
// needs.
void ForgetOld(const std::vector<int64_t>& served, std::map<int64_t, Verdict>& verdicts);

}  // namespace hyperserve
