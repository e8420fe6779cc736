#include "core/kernels/conv/conv_image.h"

#include <cuda_fp16.h>

#include <algorithm>
#include <cstring>

namespace hyperserve::kernels {
namespace {

constexpr int kTaps = 9;

// Channels of a group of planes: whole steps of the products.
int Padded(int channels) { return std::max(32, (channels + 15) / 16 * 16); }

ConvAside AsideOf(ConvInput input) {
  if (input == ConvInput::kSlope1) return kAsideSlope1;
  return input == ConvInput::kSlope2 ? kAsideSlope2 : kAsideState0;
}

// Parts of a layer of a readout.
int PartsOf(int outputs) { return (outputs + kConvChannelsMax - 1) / kConvChannelsMax; }

bool IsConstant(ConvInput input) { return input == ConvInput::kStep || input == ConvInput::kDepth; }

class Packer {
 public:
  explicit Packer(const ConvModel& model) : model_(model) {
    layout_.channels = model.channels;
    layout_.height = model.height;
    layout_.width = model.width;
    layout_.planes = Padded(model.channels) / 8;
    std::fill_n(layout_.aside_first, kAsides, -1);
  }

  ConvImage Pack() && {
    if (model_.correction) PlaceAsides(model_.correction->front());
    PackNet(model_.field);
    layout_.field_layers = layout_.layers_count;
    if (model_.correction) PackNet(*model_.correction);
    if (model_.table) PackTable(*model_.table);
    layout_.bytes = static_cast<uint32_t>(bytes_.size());
    return {.layout = layout_, .bytes = std::move(bytes_)};
  }

 private:
  void PlaceAsides(const ConvLayer& layer) {
    for (const ConvInput input : layer.inputs) {
      if (input == ConvInput::kBefore || IsConstant(input)) continue;
      layout_.aside_first[AsideOf(input)] = layout_.planes_aside;
      layout_.planes_aside += Padded(model_.channels) / 8;
    }
  }

  void PackNet(const ConvNet& net) {
    int before = model_.channels;
    for (const ConvLayer& layer : net) {
      Add(PackLayer(layer, before));
      layout_.planes = std::max(layout_.planes, Padded(layer.outputs) / 8);
      before = layer.outputs;
    }
  }

  ConvLayerLayout PackLayer(const ConvLayer& layer, int before) {
    ConvLayerLayout made{.offset = static_cast<uint32_t>(bytes_.size()),
                         .outputs = Padded(layer.outputs),
                         .steps_before = Padded(before) / 16,
                         .activation = layer.activation};
    for (const ConvInput input : layer.inputs) {
      made.constants |= IsConstant(input);
      if (input != ConvInput::kBefore && !IsConstant(input)) {
        made.steps_aside += Padded(model_.channels) / 16;
      }
    }
    const int columns = 16 * (made.steps_before + made.steps_aside);
    made.bias = static_cast<uint32_t>(kTaps * made.outputs * columns) * 2;
    const size_t floats =
        static_cast<size_t>(made.outputs) * (made.constants ? 2 + 2 * kConvBorderClasses : 2);
    made.bytes = made.bias + static_cast<uint32_t>(floats * sizeof(float));
    bytes_.resize(bytes_.size() + made.bytes);
    PutWeights(layer, before, made, columns);
    PutFloats(layer, before, made);
    return made;
  }

  // The outputs `first` and up to kConvChannelsMax - 1 that follow.
  static ConvLayer PartOf(const ConvLayer& layer, int first) {
    const auto outputs = static_cast<size_t>(layer.outputs);
    const auto begin = static_cast<size_t>(first);
    const size_t end = std::min(outputs, begin + kConvChannelsMax);
    const auto cut = [&](const std::vector<float>& values) {
      const size_t each = values.size() / outputs;
      return std::vector<float>(values.begin() + static_cast<ptrdiff_t>(begin * each),
                                values.begin() + static_cast<ptrdiff_t>(end * each));
    };
    return {.inputs = layer.inputs,
            .outputs = static_cast<int>(end - begin),
            .weight = cut(layer.weight),
            .bias = cut(layer.bias),
            .activation = layer.activation,
            .slopes = cut(layer.slopes)};
  }

  void PackInParts(const ConvLayer& layer, int before) {
    ConvLayerLayout made = PackLayer(PartOf(layer, 0), before);
    made.parts = PartsOf(layer.outputs);
    for (int part = 1; part < made.parts; ++part) {
      PackLayer(PartOf(layer, part * kConvChannelsMax), before);
    }
    Add(made);
    layout_.readout_planes = std::max(layout_.readout_planes, made.parts * kConvChannelsMax / 8);
  }

  // Calls put(input, channel in the weights, channel in the planes) for each channel of a layer.
  template <class Put>
  void ForChannels(const ConvLayer& layer, int before, const Put& put) const {
    int from = 0;
    for (const ConvInput input : layer.inputs) {
      const int to = input == ConvInput::kBefore || IsConstant(input)
                         ? 0
                         : Padded(before) + 8 * layout_.aside_first[AsideOf(input)];
      const int channels = ConvChannels(input, model_, before);
      for (int i = 0; i < channels; ++i) put(input, from + i, to + i);
      from += channels;
    }
  }

  int InputsOf(const ConvLayer& layer, int before) const {
    int inputs = 0;
    for (const ConvInput input : layer.inputs) inputs += ConvChannels(input, model_, before);
    return inputs;
  }

  void PutWeights(const ConvLayer& layer, int before, const ConvLayerLayout& made, int columns) {
    const int inputs = InputsOf(layer, before);
    ForChannels(layer, before, [&](ConvInput input, int from, int to) {
      if (IsConstant(input)) return;
      for (int output = 0; output < layer.outputs; ++output) {
        for (int tap = 0; tap < kTaps; ++tap) {
          const int place = (output * inputs + from) * kTaps + tap;
          const float weight = layer.weight[static_cast<size_t>(place)];
          const int tile = (tap * made.outputs / 8 + output / 8) * (columns / 8) + to / 8;
          const int half = tile * 64 + output % 8 * 8 + to % 8;
          Put(made.offset + static_cast<size_t>(half) * sizeof(__half), __float2half_rn(weight));
        }
      }
    });
  }

  void PutFloats(const ConvLayer& layer, int before, const ConvLayerLayout& made) {
    const auto at = [&](int place) {
      return made.offset + made.bias + static_cast<size_t>(place) * sizeof(float);
    };
    for (int output = 0; output < layer.outputs; ++output) {
      const auto i = static_cast<size_t>(output);
      if (!layer.bias.empty()) Put(at(output), layer.bias[i]);
      if (!layer.slopes.empty()) Put(at(made.outputs + output), layer.slopes[i]);
    }
    const int inputs = InputsOf(layer, before);
    ForChannels(layer, before, [&](ConvInput input, int from, int) {
      if (!IsConstant(input)) return;
      const int table = input == ConvInput::kStep ? 2 : 2 + kConvBorderClasses;
      for (int border = 0; border < kConvBorderClasses; ++border) {
        for (int output = 0; output < layer.outputs; ++output) {
          const int place = (output * inputs + from) * kTaps;
          const float* taps = &layer.weight[static_cast<size_t>(place)];
          Put(at((table + border) * made.outputs + output), SumOfTaps(taps, border));
        }
      }
    });
  }

  // x_0 (-1), a slope, or x_n (n).
  using Source = int;

  void PackTable(const ConvTable& table) {
    const int n = table.evaluations();
    layout_.evaluations = n;
    int numbers = 2 * n;
    if (model_.readout) {
      layout_.readout_scale = model_.readout->scale;
      layout_.readout_parts = PartsOf(model_.readout->hidden);
      layout_.readout_planes = layout_.readout_parts * kConvChannelsMax / 8;
      numbers += layout_.readout_parts + model_.readout->parts();
    }
    layout_.table = static_cast<uint32_t>(bytes_.size());
    const int floats = kConvTableFirst + numbers * kConvChannelsMax;
    bytes_.resize(bytes_.size() + static_cast<size_t>(floats) * sizeof(float));
    for (int i = 0; i < n; ++i) {
      PutOfTable(i, static_cast<float>(table.nodes[static_cast<size_t>(i)]));
      const int diagonal = kConvTableFirst + 2 * i * kConvChannelsMax;
      for (int channel = 0; channel < model_.channels; ++channel) {
        const int on_diagonal = channel * (model_.channels + 1);
        PutOfTable(diagonal + channel, MapOf(table, i, -1)[on_diagonal]);
        const int place = i * model_.channels + channel;
        PutOfTable(diagonal + kConvChannelsMax + channel, table.offset[static_cast<size_t>(place)]);
      }
    }
    for (Source source = -1; source < n; ++source) PackMaps(table, source);
    if (model_.readout) PackReadout(*model_.readout, kConvTableFirst + 2 * n * kConvChannelsMax);
  }

  void PutOfTable(int place, float number) {
    Put(layout_.table + static_cast<size_t>(place) * sizeof(float), number);
  }

  // a_i (column -1) or B_ij (column j).
  const float* MapOf(const ConvTable& table, int i, int column) const {
    const ptrdiff_t map = i * (i + 3) / 2 + 1 + column, channels = model_.channels;
    return table.coefficients.data() + map * channels * channels;
  }

  // Room for so many maps of so many channels; the caller puts their weights.
  ConvLayerLayout MakeMaps(int maps, int gathers, int inputs) {
    ConvLayerLayout made{.offset = static_cast<uint32_t>(bytes_.size()),
                         .outputs = kConvChannelsMax,
                         .steps_before = Padded(inputs) / 16,
                         .maps = maps,
                         .gathers = gathers};
    const int taps = layout_.readout_scale * layout_.readout_scale;
    made.bytes =
        static_cast<uint32_t>((maps + taps * gathers) * made.steps_before) * kConvMapStepBytes;
    bytes_.resize(bytes_.size() + made.bytes);
    Add(made);
    return made;
  }

  void PutMapWeight(const ConvLayerLayout& made, int map, int output, int input, float weight) {
    const int tile = output / 8 * 2 * made.steps_before + input / 8;
    const int half = tile * 64 + output % 8 * 8 + input % 8;
    Put(made.offset + static_cast<uint32_t>(map * made.steps_before) * kConvMapStepBytes +
            static_cast<size_t>(half) * sizeof(__half),
        __float2half_rn(weight));
  }

  // Those of x_0 have no diagonal here.
  void PackMaps(const ConvTable& table, Source source) {
    const int first = std::max(source, 0);
    const int of_table = table.evaluations() - first;
    const ConvLayerLayout made = MakeMaps(of_table, layout_.readout_parts, model_.channels);
    for (int map = 0; map < of_table; ++map) {
      const float* weights = MapOf(table, first + map, source);
      for (int i = 0; i < model_.channels * model_.channels; ++i) {
        const int output = i / model_.channels, input = i % model_.channels;
        const bool aside = source < 0 && output == input;
        PutMapWeight(made, map, output, input, aside ? 0.0f : weights[i]);
      }
    }
    if (model_.readout) PutGather(*model_.readout, source, made);
  }

  // What of `down` reads this source.
  void PutGather(const ConvReadout& readout, Source source, const ConvLayerLayout& made) {
    const int n = layout_.evaluations;
    const ConvInput wanted = source < 0    ? ConvInput::kState0
                             : source == n ? ConvInput::kBefore
                                           : ConvInput::kSlopes;
    const int taps = readout.parts();
    const int inputs = static_cast<int>(readout.down.size()) / (taps * std::max(readout.hidden, 1));
    int first = 0;
    for (const ConvInput input : readout.inputs) {
      if (input == wanted) {
        if (wanted == ConvInput::kSlopes) first += source * model_.channels;
        for (int output = 0; output < readout.hidden; ++output) {
          const int of_part = made.maps + output / kConvChannelsMax * taps;
          for (int i = 0; i < taps * model_.channels; ++i) {
            const int place = (output * inputs + first) * taps + i;
            PutMapWeight(made, of_part + i % taps, output % kConvChannelsMax, i / taps,
                         readout.down[static_cast<size_t>(place)]);
          }
        }
        return;
      }
      first += model_.channels * (input == ConvInput::kSlopes ? n : 1);
    }
  }

  // `floats`: where its biases stand in the table.
  void PackReadout(const ConvReadout& readout, int floats) {
    PutGather(readout, layout_.evaluations, MakeMaps(0, layout_.readout_parts, model_.channels));
    int before = readout.hidden;
    for (const ConvLayer& layer : readout.middle) {
      PackInParts(layer, before);
      before = layer.outputs;
    }
    const int parts = readout.parts();
    const ConvLayerLayout up = MakeMaps(parts, 0, before);
    for (int i = 0; i < readout.hidden; ++i) {
      PutOfTable(floats + i, readout.down_bias[static_cast<size_t>(i)]);
    }
    for (int i = 0; i < parts * model_.channels; ++i) {
      const int channel = i / parts, map = i % parts;
      PutOfTable(floats + (layout_.readout_parts + map) * kConvChannelsMax + channel,
                 readout.up_bias[static_cast<size_t>(i)]);
      for (int input = 0; input < before; ++input) {
        PutMapWeight(up, map, channel, input, readout.up[static_cast<size_t>(i * before + input)]);
      }
    }
  }

  void Add(const ConvLayerLayout& made) {
    layout_.layer_bytes = std::max(layout_.layer_bytes, made.bytes);
    layout_.layers[layout_.layers_count++] = made;
  }

  // Border classes: 3 (first row 0, last row 2, else 1) + the same of columns.
  static float SumOfTaps(const float* taps, int border) {
    double sum = 0.0;
    for (int tap = 0; tap < kTaps; ++tap) {
      const int row = border / 3 + tap / 3 - 1, column = border % 3 + tap % 3 - 1;
      if (row >= 0 && row <= 2 && column >= 0 && column <= 2) sum += taps[tap];
    }
    return static_cast<float>(sum);
  }

  template <class Number>
  void Put(size_t place, Number number) {
    std::memcpy(bytes_.data() + place, &number, sizeof(number));
  }

  const ConvModel& model_;
  ConvLayout layout_;
  std::vector<std::byte> bytes_;
};

}  // namespace

ConvImage PackConv(const ConvModel& model) { return Packer(model).Pack(); }

}  // namespace hyperserve::kernels
