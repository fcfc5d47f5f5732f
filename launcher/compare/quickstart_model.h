// The measured model of the engine that a simulation without --model has. Pure.
#pragma once

#include "launcher/capacity/engine_model.h"

namespace pdjob::launcher {

EngineModel quickstart_model();

}  // namespace pdjob::launcher
