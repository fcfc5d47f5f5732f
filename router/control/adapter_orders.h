// AdapterOrders: loads an adapter (LoRA) into every worker whose engine can, or unloads it from
// all. It asks them over HTTP, all at once, and answers when the last one has answered. Who may
// give such an order is decided before. Loop-bound.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "net/http/http_client.h"
#include "net/loop/loop.h"
#include "openai/openai.h"
#include "router/core/router.h"

namespace pdjob::router {

class AdapterOrders {
 public:
  static constexpr size_t kOrdersMax = 16;  // At the same time; beyond: 503.

  struct Answer {
    int status = 200;
    std::string body;
  };
  // `submit` tells the core what has changed. All must outlive it.
  AdapterOrders(net::Loop& loop, const Router& core, std::function<void(RouterEvent)> submit);
  ~AdapterOrders();
  AdapterOrders(const AdapterOrders&) = delete;
  AdapterOrders& operator=(const AdapterOrders&) = delete;

  // The POSTs of vLLM and of SGLang; each reaches engines of both makes.
  static bool takes(std::string_view path);
  // Calls `done` once, now or later. `body`: as the engines want it, with `model` if the job has
  // several.
  void order(std::string_view path, const std::string& body, std::function<void(Answer)> done);

 private:
  struct Order;

  void ask(const std::shared_ptr<Order>& order, const Worker& worker, const std::string& path,
           const std::string& body);
  void take(Order& order, WorkerId worker, const Result<net::HttpReply>& reply);
  static void finish(const Order& order);

  net::Loop& loop_;
  const Router& core_;
  const std::function<void(RouterEvent)> submit_;
  std::unique_ptr<net::HttpClient> client_;
  size_t orders_ = 0;
};

}  // namespace pdjob::router
