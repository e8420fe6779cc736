// Read by the thread sanitizer at start; nothing else calls it. Debian's Abseil is not
// instrumented, so the reference count of a Status that crosses threads looks like a race.
extern "C" const char* __tsan_default_suppressions() { return "race:absl::*Status::Unref*\n"; }
