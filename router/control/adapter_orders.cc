#include "router/control/adapter_orders.h"

#include <algorithm>
#include <array>
#include <utility>

#include "common/config/words.h"
#include "common/json/json_writer.h"
#include "common/limits.h"
#include "common/log.h"
#include "openai/json/json_edit.h"

namespace pdjob::router {
namespace {

constexpr std::array<std::string_view, 2> kLoadPaths = {"/v1/load_lora_adapter",
                                                        "/load_lora_adapter"};
constexpr std::array<std::string_view, 2> kUnloadPaths = {"/v1/unload_lora_adapter",
                                                          "/unload_lora_adapter"};
constexpr std::array<std::string_view, 3> kOrderMembers = {"lora_name", "lora_path", "model"};
constexpr Duration kConnectTimeout = std::chrono::seconds(5);
// An engine may read the adapter from far away.
constexpr Duration kAnswerTimeout = std::chrono::minutes(5);
constexpr size_t kReplyBytesMax = 64 * limits::kKiB;
constexpr size_t kMessageBytesMax = 300;

bool contains(const std::array<std::string_view, 2>& paths, std::string_view path) {
  return std::ranges::find(paths, path) != paths.end();
}

// Where this worker takes the order. Empty: nowhere.
std::string_view path_of(const Worker& worker, bool loads) {
  for (const std::string_view path : loads ? kLoadPaths : kUnloadPaths) {
    if (worker.has_route(path)) {
      return path;
    }
  }
  return {};
}

// The name by which requests name the adapter at this worker.
std::string name_at(const Worker& worker, const std::string& adapter) {
  const std::string& naming = worker.entry.adapter_name;
  return naming.empty() ? adapter
                        : fill_words(naming, {{"adapter", adapter}, {"model", worker.entry.model}});
}

AdapterOrders::Answer refusal(const openai::ApiError& error) {
  return {.status = error.status, .body = openai::error_body(error)};
}

}  // namespace

struct AdapterOrders::Order {
  struct Failure {
    std::string worker;
    int status = 0;  // 0: there was no answer.
    std::string message;
  };
  bool loads = false;
  std::string adapter;
  std::vector<std::string> workers;  // Those that did it.
  std::vector<Failure> failures;
  size_t pending = 0;
  std::function<void(Answer)> done;
};

AdapterOrders::AdapterOrders(net::Loop& loop, const Router& core,
                             std::function<void(RouterEvent)> submit)
    : loop_(loop),
      core_(core),
      submit_(std::move(submit)),
      client_(net::HttpClient::create(loop)) {}

AdapterOrders::~AdapterOrders() = default;

bool AdapterOrders::takes(std::string_view path) {
  return contains(kLoadPaths, path) || contains(kUnloadPaths, path);
}

void AdapterOrders::order(std::string_view path, const std::string& body,
                          std::function<void(Answer)> done) {
  const auto object = openai::JsonObject::scan(body, kOrderMembers);
  if (!object) {
    return done(refusal(openai::to_api_error(object.error())));
  }
  auto order = std::make_shared<Order>();
  order->loads = contains(kLoadPaths, path);
  order->adapter = openai::json_string(object->value("lora_name")).value_or("");
  const std::string model = openai::json_string(object->value("model")).value_or("");
  for (const std::string_view needed : {"lora_name", "lora_path"}) {
    const bool is_needed = needed == "lora_name" || order->loads;
    if (is_needed && openai::json_string(object->value(needed)).value_or("").empty()) {
      return done(refusal(openai::invalid_request(
          std::string(needed) + ": must be a text that is not empty", std::string(needed))));
    }
  }
  if (const auto unknown = core_.refusal_of_model(model)) {
    return done(refusal(*unknown));
  }
  if (orders_ >= kOrdersMax) {
    return done(refusal(openai::to_api_error(
        {ErrorCode::kOverloaded, "too many adapters are loaded and unloaded at once"})));
  }
  std::vector<const Worker*> able;
  for (const auto& [id, worker] : core_.workers().all()) {
    if ((model.empty() || worker.entry.model == model) && !path_of(worker, order->loads).empty()) {
      able.push_back(&worker);
    }
  }
  if (able.empty()) {
    return done(refusal(openai::invalid_request(
        "No worker here loads adapters. vLLM does with --enable-lora and the variable "
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1, SGLang with --enable-lora (engine.args, engine.env).",
        "", "not_found", 404)));
  }
  orders_ += 1;
  order->pending = able.size();
  order->done = [this, then = std::move(done)](Answer answer) {
    orders_ -= 1;
    then(std::move(answer));
  };
  const openai::JsonEdit without_model[] = {{"model", ""}};
  const std::string sent = object->edited(without_model);
  for (const Worker* worker : able) {
    ask(order, *worker, std::string(path_of(*worker, order->loads)), sent);
  }
}

void AdapterOrders::ask(const std::shared_ptr<Order>& order, const Worker& worker,
                        const std::string& path, const std::string& body) {
  net::fetch(loop_, *client_,
             {.to = {worker.entry.host, worker.entry.port},
              .method = "POST",
              .target = path,
              .header_lines = worker.key_line + "Content-Type: application/json\r\n",
              .body = body,
              .connect_timeout = kConnectTimeout,
              .head_timeout = kAnswerTimeout,
              .idle_timeout = kAnswerTimeout},
             kReplyBytesMax, [this, order, id = worker.id](const Result<net::HttpReply>& reply) {
               take(*order, id, reply);
             });
}

// An order may be repeated for workers that failed: the others then refuse what they have done.
void AdapterOrders::take(Order& order, WorkerId id, const Result<net::HttpReply>& reply) {
  const Worker* const worker = core_.workers().find(id);
  const std::string worker_name = worker == nullptr ? "" : worker->entry.name;
  const std::string name = worker == nullptr ? "" : name_at(*worker, order.adapter);
  const bool good = reply && reply->status >= 200 && reply->status < 300;
  const bool was_so = worker != nullptr && reply && reply->status >= 400 && reply->status < 500 &&
                      worker->has_adapter(name) == order.loads;
  if (worker == nullptr) {
    order.failures.push_back({.worker = "a worker that has left", .message = "it left"});
  } else if (good || was_so) {
    order.workers.push_back(worker_name);
  } else {
    order.failures.push_back(
        {.worker = worker_name,
         .status = reply ? reply->status : 0,
         .message = reply ? reply->body.substr(0, kMessageBytesMax) : reply.error().message});
  }
  if (worker != nullptr && good) {
    submit_(AdapterChanged{.worker = id, .name = name, .loaded = order.loads});
  }
  order.pending -= 1;
  if (order.pending == 0) {
    finish(order);
  }
}

void AdapterOrders::finish(const Order& order) {
  const std::string verb = order.loads ? "loaded" : "unloaded";
  log::info("adapter " + order.adapter + " is " + verb + " at " +
            std::to_string(order.workers.size()) + " workers, and not at " +
            std::to_string(order.failures.size()));
  Answer answer;
  if (!order.failures.empty()) {
    const int status = order.failures.front().status;
    const bool refused = order.workers.empty() && status >= 400 && status < 500;
    answer.status = refused ? status : 502;
  }
  JsonWriter json(answer.body);
  json.begin_object();
  json.key("object").string("adapter_order");
  json.key("adapter").string(order.adapter);
  json.key(verb).integer(order.workers.size());
  json.key("failed").integer(order.failures.size());
  json.key("workers").begin_array();
  for (const std::string& worker : order.workers) {
    json.string(worker);
  }
  json.end_array().key("failures").begin_array();
  for (const Order::Failure& failure : order.failures) {
    json.begin_object().key("worker").string(failure.worker);
    json.key("status").integer(failure.status);
    json.key("message").string(failure.message).end_object();
  }
  json.end_array().end_object();
  order.done(std::move(answer));
}

}  // namespace pdjob::router
