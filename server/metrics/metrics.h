// The daemon's metrics: values by family and labels, and the page that Prometheus reads.
// Thread-safe.
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

  // Values of labels in the order of the family's table. Precondition (asserted): the family is of
  // this type and has as many labels.
  void Observe(Metric histogram, LabelValues labels, double value);
  void Increment(Metric counter, LabelValues labels, double by = 1);
  void Change(Metric gauge, LabelValues labels, double by);
  void Set(Metric gauge, LabelValues labels, double value);

  // The page in Prometheus' text format, with the process's own figures as of now.
  std::string Text();

 private:
  struct Families;
  void SetProcessFigures();
  std::unique_ptr<Families> families_;
};

}  // namespace hyperserve
