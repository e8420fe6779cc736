// The daemon's metrics: values by family and labels, and the page that Prometheus reads.
// Thread-safe. No call fails.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "server/metrics/families.h"

namespace hyperserve {

class Metrics {
 public:
  using LabelValues = std::initializer_list<std::string_view>;

  Metrics();
  ~Metrics();

  // `labels` are values in the order of the names in kFamilies. A combination that is new becomes a
  // series and is never removed, so values must come from bounded sets. Precondition: the family
  // has the type that the function says and as many labels.
  //
  // Observe adds one observation in the family's unit; Increment adds `by`, at least 0; Change adds
  // `by` of any sign; Set replaces the value.
  void Observe(Metric histogram, LabelValues labels, double value);
  void Increment(Metric counter, LabelValues labels, double by = 1);
  void Change(Metric gauge, LabelValues labels, double by);
  void Set(Metric gauge, LabelValues labels, double value);
  // Sets every series of the gauge whose first label has the value `first`.
  void SetAll(Metric gauge, std::string_view first, double value);

  // The label under which a plan is counted: its own for the default plan and for the first
  // kPlansMax others of a model that are asked for, then "other". So the page stays small, whatever
  // plans clients ask for.
  struct CountedPlan {
    std::string_view model, plan;
    bool is_default = false;
  };
  static constexpr size_t kPlansMax = 12;
  // Counts the plan as one of the kPlansMax when it is first asked for, for as long as the process
  // lives.
  std::string LabelOf(const CountedPlan& plan);

  // The page in Prometheus' text format. Reads the figures of the process first.
  std::string Text();

 private:
  struct Families;
  void SetProcessFigures();
  std::unique_ptr<Families> families_;
};

}  // namespace hyperserve
