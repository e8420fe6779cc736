// Learned solvers of random weights and solves by their tables, for the tests of captured tables.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/engine/batch_spec.h"
#include "core/engine/engine.h"
#include "core/io/tensor.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "core/plan/step_control.h"
#include "tests/core/engine/engine_fixture.h"
#include "tests/testing/planned_solve.h"
#include "tests/testing/random_model.h"

namespace hyperserve {

// All results of a segment.
inline std::string AllText(const BatchResult& result) {
  std::string text = Text(result);
  for (const std::vector<double>* part : {&result.distance, &result.depth}) {
    text.append(reinterpret_cast<const char*>(part->data()), part->size() * sizeof(double));
  }
  return text + absl::StrCat(result.bucket);
}

// Tables of 0, 1 and 3 evaluations (of images 1 and 3), with distances; some have a readout.
inline std::shared_ptr<const Hypersolver> RandomTables(const Model& model, Coefficients kind,
                                                       uint64_t seed) {
  const bool flow = model.spec().kind == ModelKind::kFlow;
  HypersolverSpec spec = flow ? fixture::FlowTablesSpec(model, kind)
                              : fixture::TablesSpec(model, Direction::kForward, kind);
  for (TableSpec& table : spec.tables) table.distance = kind;
  return fixture::RandomHypersolver(spec, model, seed);
}

// By a table of so many evaluations, with a distance.
inline PlannedSolve ByTable(const std::shared_ptr<const Model>& model,
                            const std::shared_ptr<const Hypersolver>& tables,
                            Tier tier = Tier::kExact) {
  const bool flow = model->spec().kind == ModelKind::kFlow;
  return {.model = model,
          .correction = tables,
          .plan = Hypersolved(Method::kLearned, 1),
          .tier = tier,
          .entry = flow ? Entry::kState : Entry::kInput,
          .direction = flow ? Direction::kNoiseToData : Direction::kForward,
          .want_outputs = !flow,
          .want_distance = true};
}

// Rows that ask for so many evaluations.
struct TableRowsAsked {
  HostTensor rows;
  int steps = 1;
};

inline Segment SegmentOf(const TableRowsAsked& asked, const TensorView& condition = {}) {
  return {.rows = asked.rows.shape[0],
          .data = View(asked.rows),
          .condition = condition,
          .control = FixedSteps{.steps = asked.steps}};
}

// The results of segments that are solved in one run.
inline std::vector<std::string> SolvedBy(Run& run, const std::vector<TableRowsAsked>& asked,
                                         const TensorView& condition = {}) {
  std::vector<std::string> texts(asked.size());
  Ticket first = 0;
  for (size_t i = 0; i < asked.size(); ++i) {
    const auto ticket = run.Admit(SegmentOf(asked[i], condition));
    EXPECT_TRUE(ticket.ok()) << ticket.status();
    if (i == 0) first = ticket.value();
  }
  const auto never = [] { return false; };
  while (!run.Advance(1, never).value()) continue;
  const std::vector<SolvedSegment> all = run.TakeFinished().value();
  EXPECT_EQ(all.size(), asked.size());
  for (const SolvedSegment& one : all) {
    texts[static_cast<size_t>(one.ticket - first)] = AllText(one.rows);
  }
  return texts;
}

}  // namespace hyperserve
