// The engine's events as Python objects.
#pragma once

#include <pybind11/pybind11.h>

#include <vector>

#include "engine/data/events.h"

namespace imp::bindings {

void register_events(pybind11::module_& module);

// By the names of the drafters, in their order.
pybind11::dict dict_of(const CountsByDrafter& counts);

// Moves the events into a list of Python objects, oldest first.
pybind11::list event_list(std::vector<Event>& events);

}  // namespace imp::bindings
