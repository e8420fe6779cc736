// The time that long work has left, where it is made of pieces of several kinds, such as the steps
// of a fit and the checks between them. The pieces of a kind take about the same time each. One
// thread only.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace hyperserve {

class TimeLeft {
 public:
  // kSeconds: costs are good guesses of seconds, so Seconds is known before the first piece.
  enum class Costs { kAnyUnit, kSeconds };
  explicit TimeLeft(Costs costs = Costs::kAnyUnit) : costs_(costs) {}

  // Expects `pieces` more of a new kind and returns its number. `cost`, above 0: what a piece will
  // take, in any unit that all kinds share; it counts until the first piece of the kind is done.
  size_t Expect(int64_t pieces, double cost);
  // A piece of the kind took this long. Precondition: Expect returned the kind.
  void Note(size_t kind, double seconds);
  // Pieces of the kind that are not to be done. Precondition: Expect returned the kind.
  void Skip(size_t kind, int64_t pieces);
  // The pieces of the kind that are still to be done take at most so many seconds; where it is
  // over, the caller skips the others. Precondition: Expect returned the kind.
  void Limit(size_t kind, double seconds);
  // Calls `work`, notes the time that it took, and returns what it returns. While it runs, Seconds
  // is what the other pieces will take.
  template <class Work>
  auto Timed(size_t kind, const Work& work) {
    const auto start = std::chrono::steady_clock::now();
    Skip(kind, 1);
    auto result = work();
    Add(kind, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    return result;
  }

  double noted_seconds() const;  // of all pieces so far
  // Until the last expected piece is done; NaN where nothing was noted yet, but see Costs.
  double Seconds() const;

 private:
  void Add(size_t kind, double seconds);

  struct Kind {
    int64_t left = 0;
    double cost = 0;
    int64_t done = 0;
    double seconds = 0;                                     // of those that are done
    double most = std::numeric_limits<double>::infinity();  // for them and those that are left
  };
  Costs costs_;
  std::vector<Kind> kinds_;
};

}  // namespace hyperserve
