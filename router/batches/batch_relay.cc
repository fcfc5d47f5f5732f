#include "router/batches/batch_relay.h"

#include <array>
#include <charconv>
#include <utility>

#include "common/crypto/job_keys.h"
#include "common/limits.h"
#include "common/log.h"
#include "openai/headers.h"
#include "openai/openai.h"
#include "router/relay/leg_head.h"

namespace pdjob::router {
namespace {

constexpr std::string_view kRoutes[] = {"/v1/files", "/v1/batches"};
// The process may be starting again: its door takes connections meanwhile.
constexpr Duration kHeadTimeout = std::chrono::seconds(60);
constexpr Duration kIdleTimeout = std::chrono::seconds(120);

std::string header_lines(const BatchDoor& batches, const std::string& tenant,
                         const std::string& request_id) {
  std::string lines = authorization_line(batches.key);
  lines.append(openai::header::kBatchTenant).append(": ").append(tenant).append("\r\n");
  lines.append(openai::header::kRequestId).append(": ").append(request_id).append("\r\n");
  return lines;
}

void refuse(ReplySink& sink, std::string message,
            const std::pair<std::string, std::string>& header = {"Retry-After", "1"}) {
  const openai::ApiError error{
      .status = 503, .type = "overloaded_error", .message = std::move(message)};
  sink.reply(error.status, "application/json", openai::error_body(error), {header});
}

void append_hex(std::string& text, size_t number) {
  std::array<char, 16> digits;
  text.append(digits.data(),
              std::to_chars(digits.data(), digits.data() + digits.size(), number, 16).ptr);
}

}  // namespace

bool BatchRelay::takes(std::string_view path) {
  for (const std::string_view route : kRoutes) {
    if (path.starts_with(route) && (path.size() == route.size() || path[route.size()] == '/')) {
      return true;
    }
  }
  return false;
}

void BatchRelay::admit(net::HttpRequest& request) const {
  request.streams = true;
  request.body_bytes_max = batches_.body_bytes_max;
}

void BatchRelay::route(net::ExchangeId client, const net::HttpRequest& request,
                       const std::string& tenant, const std::string& request_id,
                       std::unique_ptr<ReplySink> sink) {
  if (passing_.size() >= limits::kBatchRelaysMax ||
      of_tenant_[tenant] >= limits::kBatchRelaysOfTenantMax) {
    refuse(*sink, "Too many requests for files and batches are under way");
    return;
  }
  const std::string_view length = request.header("content-length");
  std::string lines = header_lines(batches_, tenant, request_id);
  if (request.streams) {
    lines += length.empty() ? "Transfer-Encoding: chunked\r\n"
                            : "Content-Length: " + std::string(length) + "\r\n";
  }
  std::string target(request.path);
  if (!request.query.empty()) {
    target.append("?").append(request.query);
  }
  const std::string client_lines = leg_header_lines(request, {.own_key = true});
  const net::CallId call = client_->start({.to = batches_.address,
                                           .method = request.is_head ? "HEAD" : request.method,
                                           .target = target,
                                           .header_lines = client_lines,
                                           .more_header_lines = lines,
                                           .streams = request.streams,
                                           .head_timeout = kHeadTimeout,
                                           .idle_timeout = kIdleTimeout},
                                          *this);
  client_of_[call] = client;
  ++of_tenant_[tenant];
  passing_[client] = {.call = call,
                      .sink = std::move(sink),
                      .tenant = tenant,
                      .request_id = request_id,
                      .reads = request.method == "GET",
                      .chunked = request.streams && length.empty(),
                      .body_paused = request.streams};
  if (request.streams) {
    server_.pause_body(client);  // Until on_writable().
  }
}

void BatchRelay::on_body(net::ExchangeId client, std::string_view bytes, net::BodyPart part) {
  const auto found = passing_.find(client);
  if (found == passing_.end()) {
    return;
  }
  Passing& passing = found->second;
  const bool last = part == net::BodyPart::kLast;
  size_t waits = 0;
  if (passing.chunked) {
    std::string framed;
    if (!bytes.empty()) {
      append_hex(framed, bytes.size());
      framed.append("\r\n").append(bytes).append("\r\n");
    }
    framed.append(last ? "0\r\n\r\n" : "");
    waits = client_->send_body(passing.call, framed);
  } else {
    waits = client_->send_body(passing.call, bytes);
  }
  if (last) {
    client_->end_body(passing.call);
  } else if (waits > 0 && !passing.body_paused) {
    passing.body_paused = true;
    server_.pause_body(client);
  }
}

void BatchRelay::on_writable(net::CallId call) {
  Passing* const passing = passing_of(call);
  if (passing != nullptr && std::exchange(passing->body_paused, false)) {
    server_.resume_body(client_of_.at(call));
  }
}

BatchRelay::Passing* BatchRelay::passing_of(net::CallId call) {
  const auto client = client_of_.find(call);
  return client == client_of_.end() ? nullptr : &passing_.at(client->second);
}

BatchRelay::Passing BatchRelay::take(net::CallId call) {
  const auto client = client_of_.extract(call);
  Passing passing = std::move(passing_.extract(client.mapped()).mapped());
  forget(passing.tenant);
  return passing;
}

void BatchRelay::forget(const std::string& tenant) {
  if (--of_tenant_.at(tenant) == 0) {
    of_tenant_.erase(tenant);
  }
}

void BatchRelay::on_head(net::CallId call, const net::HttpReplyHead& head) {
  Passing& passing = *passing_of(call);
  passing.begun = true;
  passing.sink->begin(head, WorkerId{}, {.request_id = passing.request_id});
}

void BatchRelay::on_body(net::CallId call, std::string_view raw) {
  if (!passing_of(call)->sink->write(raw)) {
    client_->pause(call);
  }
}

void BatchRelay::on_end(net::CallId call) { take(call).sink->end(); }

void BatchRelay::on_error(net::CallId call, const Error& error) {
  const Passing passing = take(call);
  log::warn("the Batch API's process does not answer: " + error.message);
  if (passing.begun) {
    passing.sink->abort();
  } else if (passing.reads) {
    refuse(*passing.sink, "The Batch API does not answer now; its process may be starting again");
  } else {
    // The `openai` client would repeat it by itself, and make a second batch of the same rows.
    refuse(*passing.sink,
           "The Batch API did not answer, but may have done what you asked: list your files or "
           "batches before you try again",
           {"x-should-retry", "false"});
  }
}

void BatchRelay::client_gone(net::ExchangeId client) {
  const auto found = passing_.find(client);
  if (found != passing_.end()) {
    client_->cancel(found->second.call);
    client_of_.erase(found->second.call);
    forget(found->second.tenant);
    passing_.erase(found);
  }
}

void BatchRelay::client_writable(net::ExchangeId client) {
  if (const auto found = passing_.find(client); found != passing_.end()) {
    client_->resume(found->second.call);
  }
}

}  // namespace pdjob::router
