#include "training/memory_advice.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace hyperserve {

absl::Status WithMemoryAdvice(const absl::Status& status, double memory_max) {
  if (!absl::IsResourceExhausted(status)) return status;
  const std::string more =
      memory_max > 0 ? absl::StrFormat("allow more than --device_memory_max=%g bytes", memory_max)
                     : std::string("free what other processes hold of it");
  return absl::ResourceExhaustedError(
      absl::StrCat(status.message(), "; ", more,
                   ", or give the recipe smaller batches (optimiser.batch) or fewer rows"));
}

}  // namespace hyperserve
