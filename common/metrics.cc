#include "common/metrics.h"

#include <exception>
#include <map>

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include "common/check.h"

namespace pdjob {
namespace {

std::map<std::string, std::string> to_map(const Labels& labels) {
  return {labels.begin(), labels.end()};
}

// The client throws if a name is malformed or has two types, which is our own bug.
template <class Make>
void* made(const std::string& name, const Make& make) {
  try {
    return make();
  } catch (const std::exception& failure) {
    PDJOB_CHECK(false, name, failure.what());
  }
  return nullptr;
}

}  // namespace

struct Metrics::State {
  prometheus::Registry registry;
};

void Counter::add(double amount) { static_cast<prometheus::Counter*>(inner_)->Increment(amount); }
void Gauge::set(double value) { static_cast<prometheus::Gauge*>(inner_)->Set(value); }
void Histogram::observe(double value) {
  static_cast<prometheus::Histogram*>(inner_)->Observe(value);
}

Metrics::Metrics() : state_(std::make_unique<State>()) {}
Metrics::~Metrics() = default;

Counter Metrics::counter(const std::string& name, const std::string& help, const Labels& labels) {
  return Counter(made(name, [&] {
    return &prometheus::BuildCounter()
                .Name(name)
                .Help(help)
                .Register(state_->registry)
                .Add(to_map(labels));
  }));
}

Gauge Metrics::gauge(const std::string& name, const std::string& help, const Labels& labels) {
  return Gauge(made(name, [&] {
    return &prometheus::BuildGauge()
                .Name(name)
                .Help(help)
                .Register(state_->registry)
                .Add(to_map(labels));
  }));
}

Histogram Metrics::histogram(const std::string& name, const std::string& help,
                             std::vector<double> bounds, const Labels& labels) {
  return Histogram(made(name, [&] {
    return &prometheus::BuildHistogram()
                .Name(name)
                .Help(help)
                .Register(state_->registry)
                .Add(to_map(labels), std::move(bounds));
  }));
}

std::string Metrics::text() const {
  return prometheus::TextSerializer().Serialize(state_->registry.Collect());
}

std::vector<double> latency_bounds() {
  return {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,  0.25,
          0.5,   1.0,    2.5,   5.0,  10.0,  20.0, 40.0, 60.0};
}

}  // namespace pdjob
