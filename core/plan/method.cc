#include "core/plan/method.h"

namespace hyperserve {

std::optional<Method> MethodFromName(std::string_view name) {
  for (const MethodName& entry : kMethodNames) {
    if (entry.name == name) return entry.method;
  }
  for (const MethodName& entry : kTableMethodNames) {
    if (entry.name == name) return entry.method;
  }
  return std::nullopt;
}

}  // namespace hyperserve
