// Turns what LibTorch throws during a solve or a fit into a Status that says whose fault it is. For
// core/engine and training.
#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/engine/device.h"

namespace hyperserve {

// As CatchExceptions, for calls that use a device. kResourceExhausted where its memory is full:
// fewer rows may fit. kUnavailable where it answers no call any more, as after a trap in a kernel:
// only a new process gets it back. Else kInternal. Waits for the device after an exception, to ask
// it, and not after success. Catches what derives from std::exception, and nothing else.
template <class Body>
auto CatchDeviceFaults(std::string_view what, Body&& body) -> std::invoke_result_t<Body> {
  try {
    return std::forward<Body>(body)();
  } catch (const c10::OutOfMemoryError&) {
    return absl::ResourceExhaustedError(
        absl::StrCat(Absl(what), ": the memory of the device is full"));
  } catch (const std::exception& error) {
    // LibTorch's words go on over many lines: where it was thrown, and advice.
    const std::string_view words(error.what());
    const std::string first(words.substr(0, words.find('\n')));
    switch (StateOfDevice()) {
      case DeviceState::kFull:
        return absl::ResourceExhaustedError(
            absl::StrCat(Absl(what), ": the memory of the device is full"));
      case DeviceState::kLost:
        return absl::UnavailableError(absl::StrCat(Absl(what), ": the device is lost: ", first));
      case DeviceState::kGood:
        break;
    }
    return absl::InternalError(absl::StrCat(Absl(what), ": ", Absl(words)));
  }
}

}  // namespace hyperserve
