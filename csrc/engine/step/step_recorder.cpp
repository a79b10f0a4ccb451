// Allocates when a profile begins, so that no step does.
#include "engine/step/step_recorder.h"

#include <utility>

namespace imp {

void StepRecorder::begin(const ProfileCommand& command, std::vector<Event>& events) {
  if (profile_) finish(events);
  if (command.n_steps == 0) return;
  n_steps_ = static_cast<std::size_t>(command.n_steps);
  ProfileEvent profile{.ticket = command.ticket, .sequence = 0, .steps = {}, .ops = {}, .n_dropped_ops = 0};
  profile.steps.reserve(n_steps_);
  ops_.emplace(kMaxOps);
  profile_ = std::move(profile);
  backend_.trace_ops(&*ops_);
}

void StepRecorder::add(const StepSpan& step, std::vector<Event>& events) {
  profile_->steps.push_back(step);
  if (profile_->steps.size() == n_steps_) finish(events);
}

void StepRecorder::finish(std::vector<Event>& events) {
  backend_.trace_ops(nullptr);
  profile_->ops = ops_->take();
  profile_->n_dropped_ops = ops_->n_dropped();
  events.emplace_back(std::move(*profile_));
  profile_.reset();
  ops_.reset();
}

}  // namespace imp
