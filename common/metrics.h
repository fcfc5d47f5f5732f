// Metrics: counters, gauges and histograms of one process, and their Prometheus text. The only door
// to the Prometheus client.
//
// Updates are Thread-safe and do not allocate; families are made once, at start.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace pdjob {

using Labels = std::vector<std::pair<std::string, std::string>>;

class Counter {
 public:
  void add(double amount = 1);

 private:
  friend class Metrics;
  explicit Counter(void* inner) : inner_(inner) {}
  void* inner_;
};

class Gauge {
 public:
  void set(double value);

 private:
  friend class Metrics;
  explicit Gauge(void* inner) : inner_(inner) {}
  void* inner_;
};

class Histogram {
 public:
  void observe(double value);

 private:
  friend class Metrics;
  explicit Histogram(void* inner) : inner_(inner) {}
  void* inner_;
};

// Owns the families; handles point into it. As Prometheus asks, names carry their unit and end in
// _total, _seconds or _bytes.
class Metrics {
 public:
  Metrics();
  ~Metrics();

  Counter counter(const std::string& name, const std::string& help, const Labels& labels = {});
  Gauge gauge(const std::string& name, const std::string& help, const Labels& labels = {});
  // `bounds` ascend, without +Inf.
  Histogram histogram(const std::string& name, const std::string& help, std::vector<double> bounds,
                      const Labels& labels = {});

  // The text exposition format, version 0.0.4.
  std::string text() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// 1 ms .. 60 s, for latencies.
std::vector<double> latency_bounds();

}  // namespace pdjob
