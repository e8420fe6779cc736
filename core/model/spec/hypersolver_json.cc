// hypersolver.json: protobuf JSON to checked plain data, and back.
#include <algorithm>
#include <span>

#include "absl/strings/str_join.h"
#include "core/base/status.h"
#include "core/io/tensor.h"
#include "core/model/layers/kind.h"
#include "core/model/layers/layer.h"
#include "core/model/layers/layer_proto.h"
#include "core/model/spec/proto_json.h"
#include "core/model/spec/spec.h"
#include "core/model/spec/spec_limits.h"
#include "core/model/spec/spec_reading.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "hyperserve/v1/model.pb.h"

namespace hyperserve {
namespace {

constexpr CorrectionInput kCorrectionInputs[] = {CorrectionInput::kState,  CorrectionInput::kSlope1,
                                                 CorrectionInput::kSlope2, CorrectionInput::kState0,
                                                 CorrectionInput::kStep,   CorrectionInput::kDepth};
constexpr CorrectionInput kReadoutInputs[] = {CorrectionInput::kState, CorrectionInput::kState0,
                                              CorrectionInput::kSlopes};

// Different inputs among those that are known here.
absl::StatusOr<std::vector<CorrectionInput>> ReadInputNames(
    const google::protobuf::RepeatedPtrField<std::string>& names,
    std::span<const CorrectionInput> known) {
  std::vector<CorrectionInput> inputs;
  for (const std::string& name : names) {
    const auto found = std::find_if(known.begin(), known.end(), [&](CorrectionInput input) {
      return CorrectionInputName(input) == name;
    });
    if (found == known.end()) {
      const auto print = [](std::string* out, CorrectionInput input) {
        out->append(CorrectionInputName(input));
      };
      return Invalid("inputs: '", name, "' is none of ", absl::StrJoin(known, ", ", print));
    }
    if (std::count(inputs.begin(), inputs.end(), *found) > 0) {
      return Invalid("inputs: '", name, "' stands there twice");
    }
    inputs.push_back(*found);
  }
  if (inputs.empty()) return Invalid("inputs: at least one is needed");
  return inputs;
}

absl::StatusOr<Coefficients> ReadCoefficients(const std::string& name, const char* field) {
  for (const Coefficients kind :
       {Coefficients::kScalar, Coefficients::kChannel, Coefficients::kMap}) {
    if (CoefficientsName(kind) == name) return kind;
  }
  return Invalid(field, ": '", name, "' is none of scalar, channel, map");
}

absl::Status ReadInputs(const v1::HypersolverSpec& proto, HypersolverSpec& spec) {
  HS_ASSIGN_OR_RETURN(spec.inputs, ReadInputNames(proto.inputs(), kCorrectionInputs));
  const bool slope_2 =
      std::count(spec.inputs.begin(), spec.inputs.end(), CorrectionInput::kSlope2) > 0;
  // A method has as many stages as its order, at least.
  if (slope_2 && NameOf(spec.method.method).order < 2) {
    return Invalid("inputs: slope_2 wants a method of two stages or more, ",
                   PrintMethod(spec.method), " has one");
  }
  return absl::OkStatus();
}

absl::Status ReadClaims(const v1::HypersolverSpec& proto, HypersolverSpec& spec) {
  HS_ASSIGN_OR_RETURN(spec.eps, ReadPair(proto.eps(), "eps"));
  if (spec.eps[0] < 0 || spec.eps[1] < spec.eps[0] || spec.eps[1] <= 0) {
    return Invalid("eps: [", spec.eps[0], ", ", spec.eps[1], "] is no range of step sizes above 0");
  }
  if (spec.eps[1] > spec_limits::kStepSize) {
    return Invalid("eps: ", spec.eps[1], " is no step size: at most ", spec_limits::kStepSize);
  }
  HS_RETURN_IF_ERROR(
      CheckRange("steps: number of entries", proto.steps_size(), 0, spec_limits::kListLength));
  for (const int steps : proto.steps()) {
    HS_RETURN_IF_ERROR(CheckRange("steps", steps, 1, spec_limits::kSteps));
    spec.steps.push_back(steps);
  }
  return absl::OkStatus();
}

absl::Status CheckDigest(const std::string& digest) {
  const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (digest.size() == 64 && std::all_of(digest.begin(), digest.end(), is_hex)) {
    return absl::OkStatus();
  }
  return Invalid("base_digest: wants 64 lower-case hexadecimal digits, found ", digest.size(),
                 " characters");
}

// `spec`: a correction or a table.
absl::Status CheckNetShapes(const auto& spec, const Shape& state_shape) {
  HS_ASSIGN_OR_RETURN(const Shape input, CorrectionInputShape(spec, state_shape));
  HS_ASSIGN_OR_RETURN(const Shape output, ListShape(spec.net, input, "net"));
  if (output == state_shape) return absl::OkStatus();
  return Invalid("net: maps its inputs ", ShapeText(input), " to ", ShapeText(output),
                 "; it must give the state's shape ", ShapeText(state_shape));
}

// The readout of a table. Without evaluations there must be one.
absl::Status ReadReadout(const v1::SolverTable& proto, const Shape& state_shape, TableSpec& table) {
  HS_ASSIGN_OR_RETURN(table.net, LayersFromProto(proto, "net"));
  if (table.net.empty()) {
    if (proto.inputs_size() > 0) return Invalid("inputs: there is no net that takes them");
    if (table.evaluations == 0) return Invalid("net: a table without evaluations needs one");
    return absl::OkStatus();
  }
  HS_ASSIGN_OR_RETURN(table.inputs, ReadInputNames(proto.inputs(), kReadoutInputs));
  if (UsesDepth(table.net)) return Invalid("net: reads a depth, which a readout does not have");
  return CheckNetShapes(table, state_shape);
}

absl::Status ReadTables(const v1::HypersolverSpec& proto, const Shape& state_shape,
                        HypersolverSpec& spec) {
  if (proto.eps_size() + proto.steps_size() + proto.inputs_size() + proto.net_size() > 0) {
    return Invalid("a learned solver has tables, and no eps, steps, inputs or net beside them");
  }
  HS_ASSIGN_OR_RETURN(spec.span, ReadPair(proto.span(), "span"));
  if (!(spec.span[0] < spec.span[1])) {
    return Invalid("span: [", spec.span[0], ", ", spec.span[1], "] does not grow");
  }
  HS_RETURN_IF_ERROR(CheckRange("tables: number of entries", proto.tables_size(), 1,
                                static_cast<int64_t>(spec_limits::kGateClaims)));
  for (const v1::SolverTable& entry : proto.tables()) {
    const std::string at = absl::StrCat("tables[", spec.tables.size(), "]");
    TableSpec table{.evaluations = entry.evaluations()};
    HS_RETURN_IF_ERROR(CheckRange(at + ".evaluations", table.evaluations, 0, kTableEvaluationsMax));
    if (!spec.steps.empty() && table.evaluations <= spec.steps.back()) {
      return Invalid(at, ".evaluations: ", table.evaluations, " must be above those before it");
    }
    absl::StatusOr<Coefficients> kind = ReadCoefficients(entry.coefficients(), "coefficients");
    if (!kind.ok()) return Annotate(kind.status(), at);
    table.coefficients = *kind;
    if (!entry.distance().empty()) {
      kind = ReadCoefficients(entry.distance(), "distance");
      if (!kind.ok()) return Annotate(kind.status(), at);
      table.distance = *kind;
    }
    HS_RETURN_IF_ERROR(Annotate(ReadReadout(entry, state_shape, table), at));
    spec.steps.push_back(table.evaluations);
    spec.tables.push_back(std::move(table));
  }
  return absl::OkStatus();
}

// The correction of a one-step method.
absl::Status ReadCorrection(const v1::HypersolverSpec& proto, const Shape& state_shape,
                            HypersolverSpec& spec) {
  if (RunsFromTable(spec.method.method)) {
    return Invalid("method: ", PrintMethod(spec.method), " takes no correction");
  }
  if (proto.span_size() + proto.tables_size() > 0) {
    return Invalid("only method learned has span and tables, this is ", PrintMethod(spec.method));
  }
  HS_RETURN_IF_ERROR(ReadClaims(proto, spec));
  HS_RETURN_IF_ERROR(ReadInputs(proto, spec));
  HS_ASSIGN_OR_RETURN(spec.net, LayersFromProto(proto, "net"));
  if (spec.net.empty()) return Invalid("net: at least one layer is needed");
  return CheckNetShapes(spec, state_shape);
}

void PrintTables(const HypersolverSpec& spec, v1::HypersolverSpec& proto) {
  proto.mutable_span()->Add(spec.span.begin(), spec.span.end());
  for (const TableSpec& table : spec.tables) {
    v1::SolverTable& entry = *proto.add_tables();
    entry.set_evaluations(table.evaluations);
    entry.set_coefficients(std::string(CoefficientsName(table.coefficients)));
    for (const CorrectionInput input : table.inputs) {
      entry.add_inputs(std::string(CorrectionInputName(input)));
    }
    LayersToProto(table.net, "net", entry);
    if (table.distance) entry.set_distance(std::string(CoefficientsName(*table.distance)));
  }
}

}  // namespace

absl::StatusOr<HypersolverSpec> ParseHypersolverSpec(std::string_view json,
                                                     const Shape& state_shape) {
  HS_ASSIGN_OR_RETURN(const v1::HypersolverSpec proto, ParseJson<v1::HypersolverSpec>(json));
  HypersolverSpec spec;
  absl::StatusOr<MethodChoice> method = ParseMethod(proto.method());
  if (!method.ok()) return Annotate(method.status(), "method");
  spec.method = *method;
  HS_ASSIGN_OR_RETURN(spec.direction, ReadDirection(proto.direction()));
  HS_RETURN_IF_ERROR(spec.learned() ? ReadTables(proto, state_shape, spec)
                                    : ReadCorrection(proto, state_shape, spec));
  spec.base_digest = proto.base_digest();
  HS_RETURN_IF_ERROR(CheckDigest(spec.base_digest));
  HS_RETURN_IF_ERROR(CheckRange("provenance: number of entries", proto.provenance_size(), 0,
                                spec_limits::kListLength));
  for (const auto& [key, value] : proto.provenance()) {
    HS_RETURN_IF_ERROR(CheckTexts({key, value}, "provenance"));
    spec.provenance[key] = value;
  }
  return spec;
}

std::string PrintHypersolverSpec(const HypersolverSpec& spec) {
  v1::HypersolverSpec proto;
  proto.set_format(kFileFormat);
  proto.set_method(PrintMethod(spec.method));
  proto.set_direction(std::string(DirectionName(spec.direction)));
  if (spec.learned()) {
    PrintTables(spec, proto);
  } else {
    proto.mutable_eps()->Add(spec.eps.begin(), spec.eps.end());
    proto.mutable_steps()->Add(spec.steps.begin(), spec.steps.end());
    for (const CorrectionInput input : spec.inputs) {
      proto.add_inputs(std::string(CorrectionInputName(input)));
    }
    LayersToProto(spec.net, "net", proto);
  }
  proto.set_base_digest(spec.base_digest);
  for (const auto& [key, value] : spec.provenance) (*proto.mutable_provenance())[key] = value;
  return PrintProtoJson(proto);
}

}  // namespace hyperserve
