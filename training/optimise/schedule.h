// How a fit's learning rate falls, and how a limit of time ends the fit.
#pragma once

#include <functional>

#include "training/data/recipe.pb.h"

namespace hyperserve {

// The learning rate of an iteration: it rises linearly over `warm_up` iterations, then falls as
// half a cosine from `rate` to `final_rate`, which the last iteration has.
double LearningRate(const training::Optimiser& optimiser, int iteration);

// Seconds since any moment, by a clock that never goes back.
double SteadySeconds();

// The time of one fit beside its optimiser.seconds.
class FitTime {
 public:
  // Keeps both by reference, and begins with Begin.
  FitTime(const training::Optimiser& optimiser, const std::function<double()>& clock)
      : optimiser_(optimiser), clock_(clock) {}

  // Of a fit that goes on: the seconds that it took before.
  void Begin(double seconds_before = 0) { begun_ = clock_() - seconds_before; }
  double Seconds() const { return clock_() - begun_; }
  // Of those that it may take; infinity: there is no limit.
  double SecondsLeft() const;
  bool Over() const { return SecondsLeft() <= 0; }
  // The iteration whose learning rate is due at this one: as far on as the time, where that is
  // further. So a fit that the time ends has had its small rates, too.
  int PlaceInSchedule(int iteration) const;

 private:
  const training::Optimiser& optimiser_;
  const std::function<double()>& clock_;
  double begun_ = 0;
};

}  // namespace hyperserve
