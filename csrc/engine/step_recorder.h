// Records steps for a profile: what ran in them, and when.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "backend/backend.h"
#include "engine/commands.h"
#include "engine/events.h"

namespace imp {

// Owned by the loop, touched by its thread. What it records changes nothing that is computed.
class StepRecorder {
 public:
  // Of one profile; a step of a model of 100 layers has some 1,500.
  static constexpr std::size_t kMaxOps = std::size_t{1} << 18;

  explicit StepRecorder(Backend& backend) : backend_(backend) {}
  ~StepRecorder() { backend_.trace_ops(nullptr); }
  StepRecorder(const StepRecorder&) = delete;
  StepRecorder& operator=(const StepRecorder&) = delete;

  // Records the steps to come, as many as asked for. What was being recorded ends, and is told as far as it came.
  void begin(const ProfileCommand& command, std::vector<Event>& events);
  bool is_recording() const noexcept { return profile_.has_value(); }
  // A step has ended; the last one asked for ends the profile.
  void add(const StepSpan& step, std::vector<Event>& events);

 private:
  void finish(std::vector<Event>& events);

  Backend& backend_;
  std::optional<OpTrace> ops_;
  std::optional<ProfileEvent> profile_;
  std::size_t n_steps_ = 0;
};

}  // namespace imp
