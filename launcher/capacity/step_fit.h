// fit_steps(), fit_transfers(): the times of an EngineModel from measurements.
//
// Least squares of the relative errors, without negative times: a step of 2 ms counts as much as
// one of 2 s. A measurement that was repeated counts once, with its median. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"
#include "launcher/capacity/engine_model.h"

namespace pdjob::launcher {

// What an engine did in the time of a measurement. Value.
struct StepWork {
  double steps = 0;
  double prompt_tokens = 0;
  double sequences = 0;      // That decoded, once for each step.
  double prompt_reads = 0;   // Rows that tokens of prompts read.
  double context_reads = 0;  // Rows that decoding sequences read.
  double requests = 0;

  // One sequence in one step, as in StepTime. Requires: tokens > 0.
  void add(uint32_t rows, uint32_t tokens);
  // Becomes the mean of both, with this weight of the other: 0 to 1.
  void approach(const StepWork& other, double weight);
};

enum class ProbeKind : uint8_t { kPrefill, kDecode, kMixed };

struct StepProbe {
  ProbeKind kind = ProbeKind::kPrefill;
  std::string name;  // As in ModelProbe.
  StepWork work;
  std::vector<double> seconds;  // Of each repetition.
};

struct StepFit {
  simulation::StepTime step;
  EngineModel::Time per_request{};
  std::vector<std::string> unmeasured;  // As in EngineModel.
  ModelError prefill, decode, mixed;
  std::vector<ModelProbe> probes;
};

// The model is not fitted to kMixed. kInvalidArgument: there are no prefill or no decode probes, or
// a time is not above zero.
Result<StepFit> fit_steps(const std::vector<StepProbe>& probes);

struct TransferProbe {
  uint32_t tokens = 0;
  std::vector<double> seconds;
};

struct TransferFit {
  EngineModel::Time per_transfer{};
  EngineModel::Time per_token{};
  ModelError error;
  std::vector<ModelProbe> probes;
};

// kInvalidArgument: there are none, or a time is not above zero.
Result<TransferFit> fit_transfers(const std::vector<TransferProbe>& probes);

// Requires: there are values.
double median_of(std::vector<double> values);

// The model of a fit; the caller adds where it comes from.
EngineModel model_of(const StepFit& fit);

}  // namespace pdjob::launcher
