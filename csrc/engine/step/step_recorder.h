// Records the steps of a profile: their ops and times.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "backend/backend.h"
#include "engine/data/commands.h"
#include "engine/data/events.h"

namespace imp {

// The loop owns it; only the engine's thread touches it. Recording changes no result.
class StepRecorder {
 public:
  // Per profile. A step of a model of 100 layers has about 1,500.
  static constexpr std::size_t kMaxOps = std::size_t{1} << 18;

  explicit StepRecorder(Backend& backend) : backend_(backend) {}
  ~StepRecorder() { backend_.trace_ops(nullptr); }
  StepRecorder(const StepRecorder&) = delete;
  StepRecorder& operator=(const StepRecorder&) = delete;

  // Records the next n_steps steps. Ends a running profile and reports what it has.
  void begin(const ProfileCommand& command, std::vector<Event>& events);
  bool is_recording() const noexcept { return profile_.has_value(); }
  // A step has ended. The last requested step ends the profile.
  void add(const StepSpan& step, std::vector<Event>& events);

 private:
  void finish(std::vector<Event>& events);

  Backend& backend_;
  std::optional<OpTrace> ops_;
  std::optional<ProfileEvent> profile_;
  std::size_t n_steps_ = 0;
};

}  // namespace imp
