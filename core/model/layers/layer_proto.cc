// Reads and writes the fields of every kind by the names in its entry. hyperserve.v1 has a message
// for each kind with the kind's name, and in it a field for each of Fields() with the same name.
// tests/core/model/layers_test.cc compares the two.
#include "core/model/layers/layer_proto.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status.h"
#include "core/io/tensor.h"
#include "core/model/layers/kind.h"

namespace hyperserve {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr int kShapeDimensions = 3;  // of a row: [C, H, W]

const FieldDescriptor* Find(const Message& message, std::string_view name) {
  return message.GetDescriptor()->FindFieldByName(std::string(name));
}

template <class... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

class ListReader;

// Visits the fields of one kind and sets them from a message.
template <class Kind>
class FieldReader {
 public:
  FieldReader(const Message& proto, std::string path, int nesting, ListReader& lists)
      : proto_(proto), path_(std::move(path)), nesting_(nesting), lists_(lists) {}

  absl::StatusOr<Layer> Read() {
    Kind::Fields(*this);
    if (!status_.ok()) return status_;
    return Layer{std::move(kind_)};
  }

  void operator()(const char* name, int64_t Kind::*member, IntegerRange range,
                  int64_t Kind::*absent = nullptr) {
    int64_t& value = kind_.*member;
    if (absent != nullptr) value = kind_.*absent;
    if (Says(name)) value = reflection_.GetInt32(proto_, Find(proto_, name));
    Keep(CheckRange(Path(name), value, range.low, range.high));
  }

  void operator()(const char* name, double Kind::*member, RealRange range) {
    double& value = kind_.*member;
    if (Says(name)) value = reflection_.GetDouble(proto_, Find(proto_, name));
    if (range.low <= value && value <= range.high) return;
    Keep(Invalid(Path(name), ": ", value, " is outside [", range.low, ", ", range.high, "]"));
  }

  void operator()(const char* name, bool Kind::*member) {
    if (Says(name)) kind_.*member = reflection_.GetBool(proto_, Find(proto_, name));
  }

  // A text that is one of `names`, the names of the enumeration in its order.
  template <class Choice, size_t count>
  void operator()(const char* name, Choice Kind::*member,
                  const std::array<std::string_view, count>& names) {
    const std::string said = reflection_.GetString(proto_, Find(proto_, name));
    const auto known = std::find(names.begin(), names.end(), said);
    if (known != names.end()) {
      kind_.*member = static_cast<Choice>(known - names.begin());
    } else if (!said.empty()) {
      Keep(Invalid(Path(name), ": '", said, "' is none of ", absl::StrJoin(names, ", ", ToText)));
    }
  }

  void operator()(const char* name, Shape Kind::*member, IntegerRange range) {
    kind_.*member = List(name);
    const Shape& shape = kind_.*member;
    Keep(CheckRange(Path(name) + ": dimensions", static_cast<int64_t>(shape.size()), 1,
                    kShapeDimensions));
    for (const int64_t size : shape) Keep(CheckRange(Path(name), size, range.low, range.high));
  }

  // A number for both sizes, or a list of the two.
  void operator()(const char* name, const char* list_name, HeightWidth Kind::*member,
                  IntegerRange range) {
    const int64_t both = reflection_.GetInt32(proto_, Find(proto_, name));
    const Shape list = List(list_name);
    if (list.empty()) {
      kind_.*member = both;
      return Keep(CheckRange(Path(name), both, range.low, range.high));
    }
    if (list.size() != 2 || both != 0) {
      return Keep(Invalid(Path(list_name), ": wants [height, width], instead of ", name, ", found ",
                          ShapeText(list), both == 0 ? "" : absl::StrCat(" beside ", both)));
    }
    kind_.*member = {list[0], list[1]};
    for (const int64_t size : list) Keep(CheckRange(Path(list_name), size, range.low, range.high));
  }

  void operator()(const char* name, LayerList Kind::*member);
  void operator()(const char* name, std::vector<LayerList> Kind::*member);

 private:
  static void ToText(std::string* text, std::string_view name) {
    absl::StrAppend(text, Absl(name));
  }

  std::string Path(const char* name) const { return absl::StrCat(path_, ".", name); }
  // Fields without presence always have a value: zero where they are absent.
  bool Says(const char* name) const {
    const FieldDescriptor* field = Find(proto_, name);
    return !field->has_presence() || reflection_.HasField(proto_, field);
  }
  Shape List(const char* name) const {
    const FieldDescriptor* field = Find(proto_, name);
    Shape numbers;
    for (int i = 0; i < reflection_.FieldSize(proto_, field); ++i) {
      numbers.push_back(reflection_.GetRepeatedInt32(proto_, field, i));
    }
    return numbers;
  }
  void Keep(const absl::Status& status) { status_.Update(status); }  // the first that failed

  const Message& proto_;
  const Reflection& reflection_ = *proto_.GetReflection();
  const std::string path_;
  const int nesting_;
  ListReader& lists_;
  Kind kind_;
  absl::Status status_;
};

// Reads one list of layers and counts them, also inner ones.
class ListReader {
 public:
  // The layers in the field `name` of `proto`.
  absl::StatusOr<LayerList> Read(const Message& proto, const char* name, const std::string& path,
                                 const int nesting) {
    if (nesting > layer_limits::kNesting) {
      return Invalid(path, ": layers are nested deeper than the limit of ", layer_limits::kNesting);
    }
    const FieldDescriptor* field = Find(proto, name);
    LayerList layers;
    for (int i = 0; i < proto.GetReflection()->FieldSize(proto, field); ++i) {
      if (++count_ > layer_limits::kLayers) {
        return Invalid(path, ": more layers than the limit of ", layer_limits::kLayers);
      }
      HS_ASSIGN_OR_RETURN(Layer layer,
                          ReadLayer(proto.GetReflection()->GetRepeatedMessage(proto, field, i),
                                    absl::StrCat(path, "[", i, "]"), nesting));
      layers.push_back(std::move(layer));
    }
    return layers;
  }

 private:
  absl::StatusOr<Layer> ReadLayer(const Message& proto, const std::string& path, int nesting) {
    const FieldDescriptor* field = proto.GetReflection()->GetOneofFieldDescriptor(
        proto, proto.GetDescriptor()->FindOneofByName("kind"));
    if (field == nullptr) return Invalid(path, ": a layer names exactly one kind");
    const Message& said = proto.GetReflection()->GetMessage(proto, field);
    absl::StatusOr<Layer> layer = absl::InternalError(path + ": a kind that is not in the table");
    const auto read_as = [&]<class Kind>(const std::string& name) {
      if (field->name() != name) return;
      layer = FieldReader<Kind>(said, absl::StrCat(path, ".", name), nesting, *this).Read();
    };
    [&]<class... Kinds>(const std::variant<Kinds...>*) {
      (read_as.template operator()<Kinds>(std::string(Kinds::kName)), ...);
    }(static_cast<const LayerTable::Kind*>(nullptr));
    return layer;
  }

  int64_t count_ = 0;
};

template <class Kind>
void FieldReader<Kind>::operator()(const char* name, LayerList Kind::*member) {
  absl::StatusOr<LayerList> layers = lists_.Read(proto_, name, Path(name), nesting_ + 1);
  if (!layers.ok()) return Keep(layers.status());
  kind_.*member = *std::move(layers);
}

// Each element of the list is a message with `layers`.
template <class Kind>
void FieldReader<Kind>::operator()(const char* name, std::vector<LayerList> Kind::*member) {
  const FieldDescriptor* field = Find(proto_, name);
  const int count = reflection_.FieldSize(proto_, field);
  Keep(CheckRange(Path(name), count, 1, layer_limits::kBranches));
  for (int i = 0; i < count && status_.ok(); ++i) {
    absl::StatusOr<LayerList> layers =
        lists_.Read(reflection_.GetRepeatedMessage(proto_, field, i), "layers",
                    absl::StrCat(Path(name), "[", i, "].layers"), nesting_ + 1);
    if (!layers.ok()) return Keep(layers.status());
    (kind_.*member).push_back(*std::move(layers));
  }
}

// Visits the fields of one kind and writes them into a message.
template <class Kind>
class FieldWriter {
 public:
  FieldWriter(const Kind& kind, Message& proto) : kind_(kind), proto_(proto) {}

  void operator()(const char* name, int64_t Kind::*member, IntegerRange,
                  int64_t Kind::*absent = nullptr) const {
    const int64_t usual = absent == nullptr ? Kind{}.*member : kind_.*absent;
    if (Wanted(name, kind_.*member != usual)) Set(name, kind_.*member);
  }
  void operator()(const char* name, double Kind::*member, RealRange) const {
    if (!Wanted(name, kind_.*member != Kind{}.*member)) return;
    reflection_.SetDouble(&proto_, Find(proto_, name), kind_.*member);
  }
  void operator()(const char* name, bool Kind::*member) const {
    if (!Wanted(name, kind_.*member != Kind{}.*member)) return;
    reflection_.SetBool(&proto_, Find(proto_, name), kind_.*member);
  }
  template <class Choice, size_t count>
  void operator()(const char* name, Choice Kind::*member,
                  const std::array<std::string_view, count>& names) const {
    if (kind_.*member == Kind{}.*member) return;
    reflection_.SetString(&proto_, Find(proto_, name),
                          std::string(names[static_cast<size_t>(kind_.*member)]));
  }
  void operator()(const char* name, Shape Kind::*member, IntegerRange) const {
    for (const int64_t size : kind_.*member) Add(name, size);
  }
  void operator()(const char* name, const char* list_name, HeightWidth Kind::*member,
                  IntegerRange) const {
    const HeightWidth size = kind_.*member;
    if (size.height == size.width) return Set(name, size.height);
    Add(list_name, size.height);
    Add(list_name, size.width);
  }
  void operator()(const char* name, LayerList Kind::*member) const {
    LayersToProto(kind_.*member, name, proto_);
  }
  void operator()(const char* name, std::vector<LayerList> Kind::*member) const {
    for (const LayerList& layers : kind_.*member) {
      LayersToProto(layers, "layers", *reflection_.AddMessage(&proto_, Find(proto_, name)));
    }
  }

 private:
  // Fields with presence are left out where they hold their default.
  bool Wanted(const char* name, const bool unusual) const {
    return unusual || !Find(proto_, name)->has_presence();
  }
  void Set(const char* name, int64_t value) const {
    reflection_.SetInt32(&proto_, Find(proto_, name), static_cast<int32_t>(value));
  }
  void Add(const char* name, int64_t value) const {
    reflection_.AddInt32(&proto_, Find(proto_, name), static_cast<int32_t>(value));
  }

  const Kind& kind_;
  Message& proto_;
  const Reflection& reflection_ = *proto_.GetReflection();
};

}  // namespace

absl::StatusOr<LayerList> LayersFromProto(const Message& proto, const char* name) {
  return ListReader().Read(proto, name, name, 0);
}

void LayersToProto(const LayerList& layers, const char* name, Message& proto) {
  for (const Layer& layer : layers) {
    Message& to = *proto.GetReflection()->AddMessage(&proto, Find(proto, name));
    std::visit(
        [&]<class Kind>(const Kind& kind) {
          Message* fields = to.GetReflection()->MutableMessage(&to, Find(to, Kind::kName));
          const FieldWriter<Kind> writer(kind, *fields);
          Kind::Fields(writer);
        },
        layer.kind);
  }
}

absl::Status CheckRange(const std::string& path, int64_t value, int64_t low, int64_t high) {
  if (low <= value && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": ", value, " is outside [", low, ", ", high, "]"));
}

absl::Status CheckPositive(const std::string& path, double value) {
  if (std::isfinite(value) && value > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": ", value, " is not a finite number above 0"));
}

}  // namespace hyperserve
