// The order conditions, one for each rooted tree: whatever numbers stand in tableau.h, they make a
// method of the order it claims, and of no higher one.
//
// Source: Butcher; Hairer, Norsett, Wanner I, II.2. For a tree with subtrees t_1, ..., t_m:
// phi_i = prod_k sum_j a_ij phi_j(t_k), gamma = size prod_k gamma(t_k), and a method of order p has
// sum_i b_i phi_i = 1 / gamma for every tree of at most p nodes.
#include "core/ode/tableau.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "core/ode/dense.h"
#include "core/plan/method.h"

namespace hyperserve {
namespace {

constexpr double kRounding = 2e-14;  // of weights near 10, a few products deep

struct Tree {
  std::vector<Tree> subtrees;
  int size() const {
    int sum = 1;
    for (const Tree& tree : subtrees) sum += tree.size();
    return sum;
  }
  double gamma() const {
    double product = size();
    for (const Tree& tree : subtrees) product *= tree.gamma();
    return product;
  }
};

// Every multiset of subtrees with `nodes` nodes in all, taken from `known` in falling position.
void Forests(int nodes, size_t upto, const std::vector<Tree>& known, std::vector<Tree>& chosen,
             std::vector<Tree>& result) {
  if (nodes == 0) result.push_back({.subtrees = chosen});
  for (size_t i = 0; i < upto && nodes > 0; ++i) {
    if (known[i].size() > nodes) continue;
    chosen.push_back(known[i]);
    Forests(nodes - known[i].size(), i + 1, known, chosen, result);
    chosen.pop_back();
  }
}

std::vector<Tree> TreesUpTo(int size) {
  std::vector<Tree> trees;
  for (int nodes = 1; nodes <= size; ++nodes) {
    std::vector<Tree> chosen, fresh;
    Forests(nodes - 1, trees.size(), trees, chosen, fresh);
    trees.insert(trees.end(), fresh.begin(), fresh.end());
  }
  return trees;
}

StageWeights Phi(const Tableau& tableau, const Tree& tree) {
  StageWeights phi;
  phi.fill(1.0);
  for (const Tree& subtree : tree.subtrees) {
    const StageWeights inner = Phi(tableau, subtree);
    for (size_t i = 0; i < phi.size(); ++i) {
      double sum = 0.0;
      for (size_t j = 0; j < phi.size(); ++j) sum += tableau.a[i][j] * inner[j];
      phi[i] *= sum;
    }
  }
  return phi;
}

double Dot(const StageWeights& x, const StageWeights& y) {
  double sum = 0.0;
  for (size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

// The largest violation among trees of exactly `nodes` nodes.
double Violation(const Tableau& tableau, const StageWeights& weights, int nodes) {
  double worst = 0.0;
  for (const Tree& tree : TreesUpTo(nodes)) {
    if (tree.size() != nodes) continue;
    worst = std::max(worst, std::abs(Dot(weights, Phi(tableau, tree)) - 1.0 / tree.gamma()));
  }
  return worst;
}

std::vector<Tableau> EveryTableau() {
  std::vector<Tableau> tableaux;
  for (const MethodName& name : kMethodNames) {
    if (name.method != Method::kAlpha) tableaux.push_back(TableauFor({.method = name.method}));
  }
  for (const double alpha : {0.1, 0.3, 0.5, 0.75, 1.0}) {
    tableaux.push_back(TableauFor({.method = Method::kAlpha, .alpha = alpha}));
  }
  return tableaux;
}

class TableauTest : public ::testing::TestWithParam<Tableau> {};

TEST(Trees, AreCounted) {
  // Cayley's sequence 1, 1, 2, 4, 9, 20.
  EXPECT_EQ(TreesUpTo(1).size(), 1u);
  EXPECT_EQ(TreesUpTo(4).size(), 8u);
  EXPECT_EQ(TreesUpTo(6).size(), 37u);
}

TEST_P(TableauTest, NodesAreRowSums) {
  const Tableau& tableau = GetParam();
  for (size_t i = 0; i < static_cast<size_t>(kStagesMax); ++i) {
    double sum = 0.0;
    for (size_t j = 0; j < static_cast<size_t>(kStagesMax); ++j) {
      sum += tableau.a[i][j];
      EXPECT_TRUE(j < i || tableau.a[i][j] == 0.0) << "not explicit";
    }
    EXPECT_NEAR(tableau.c[i], sum, kRounding) << "stage " << i + 1;
  }
}

TEST_P(TableauTest, HasItsOrderAndNoMore) {
  const Tableau& tableau = GetParam();
  for (int nodes = 1; nodes <= tableau.order; ++nodes) {
    EXPECT_LT(Violation(tableau, tableau.b, nodes), kRounding) << nodes << " nodes";
  }
  EXPECT_GT(Violation(tableau, tableau.b, tableau.order + 1), 1e-5);
}

TEST_P(TableauTest, EmbeddedSolutionHasItsOrderAndNoMore) {
  const Tableau& tableau = GetParam();
  StageWeights embedded = tableau.b;
  for (size_t j = 0; j < embedded.size(); ++j) embedded[j] -= tableau.error[j];
  if (!tableau.embedded()) {
    EXPECT_EQ(embedded, tableau.b);
    return;
  }
  EXPECT_EQ(tableau.embedded_order, tableau.order - 1);
  for (int nodes = 1; nodes <= tableau.embedded_order; ++nodes) {
    EXPECT_LT(Violation(tableau, embedded, nodes), kRounding) << nodes << " nodes";
  }
  EXPECT_GT(Violation(tableau, embedded, tableau.embedded_order + 1), 1e-5);
}

TEST_P(TableauTest, OwnInterpolantHasOrderFour) {
  const Tableau& tableau = GetParam();
  if (!tableau.has_dense()) return;
  ASSERT_TRUE(tableau.fsal());
  for (const double theta : {0.1, 0.35, 0.5, 0.8, 1.0}) {
    const DenseWeights at = DenseWeightsAt(theta);
    StageWeights weights;
    for (size_t j = 0; j < weights.size(); ++j) {
      weights[j] = at.end * tableau.b[j] + at.bump * tableau.dense[j];
    }
    weights.front() += at.slope;
    weights[static_cast<size_t>(tableau.stages() - 1)] += at.end_slope;
    for (const Tree& tree : TreesUpTo(4)) {
      EXPECT_NEAR(Dot(weights, Phi(tableau, tree)), std::pow(theta, tree.size()) / tree.gamma(),
                  kRounding)
          << "theta " << theta << ", " << tree.size() << " nodes";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, TableauTest, ::testing::ValuesIn(EveryTableau()),
                         [](const auto& info) {
                           return std::string(NameOf(info.param.method).name) + "_" +
                                  std::to_string(info.index);
                         });

TEST(Tableau, StageCountsAndFsalAreDerived) {
  struct Expected {
    Method method;
    int solution_stages, stages;
    bool fsal;
  };
  for (const Expected& expected : {Expected{Method::kEuler, 1, 1, false},
                                   {Method::kMidpoint, 2, 2, false},
                                   {Method::kHeun, 2, 2, false},
                                   {Method::kRk3, 3, 3, false},
                                   {Method::kRk4, 4, 4, false},
                                   {Method::kRk438, 4, 4, false},
                                   {Method::kHeunEuler, 2, 2, false},
                                   {Method::kBosh3, 3, 4, true},
                                   {Method::kTsit5, 6, 7, true},
                                   {Method::kDopri5, 6, 7, true}}) {
    const Tableau tableau = TableauFor({.method = expected.method});
    EXPECT_EQ(tableau.solution_stages(), expected.solution_stages);
    EXPECT_EQ(tableau.stages(), expected.stages);
    EXPECT_EQ(tableau.fsal(), expected.fsal);
  }
}

TEST(Tableau, AlphaFamilyHoldsTheNamedMethods) {
  const auto same = [](const Tableau& x, const Tableau& y) {
    return x.a == y.a && x.b == y.b && x.c == y.c;
  };
  const auto alpha = [](double value) {
    return TableauFor({.method = Method::kAlpha, .alpha = value});
  };
  EXPECT_TRUE(same(alpha(0.5), TableauFor({.method = Method::kMidpoint})));
  EXPECT_TRUE(same(alpha(2.0 / 3), TableauFor({.method = Method::kRalston})));
  EXPECT_TRUE(same(alpha(1.0), TableauFor({.method = Method::kHeun})));
}

}  // namespace
}  // namespace hyperserve
