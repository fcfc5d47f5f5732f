#include "router/leg_body.h"

#include <charconv>
#include <utility>

#include "router/json_members.h"

namespace pdjob::router {
namespace {

// For a request that names no limit; only load estimates see it.
constexpr uint64_t kOutputTokensAssumed = 256;

uint64_t number_or_zero(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : 0;
}

}  // namespace

RequestBody::Edit RequestBody::edit_of(std::string_view name) {
  if (name == "max_tokens" || name == "max_completion_tokens" || name == "min_tokens" ||
      name == "n" || name == "best_of") {
    return Edit::kOne;
  }
  if (name == "stream") {
    return Edit::kFalse;
  }
  if (name == "stream_options") {
    return Edit::kDropped;
  }
  return name == "kv_transfer_params" ? Edit::kOurs : Edit::kKept;
}

std::variant<RequestBody, net::ApiError> RequestBody::scan(std::string text) {
  RequestBody body;
  body.text_ = std::move(text);
  const auto members = json_members(body.text_);
  if (!members) {
    return net::to_api_error({ErrorCode::kInvalidArgument, "the body is not a JSON object"});
  }
  body.output_tokens_ = kOutputTokensAssumed;
  for (const JsonMember& member : *members) {
    const std::string_view value =
        std::string_view(body.text_)
            .substr(member.value_begin, member.value_end - member.value_begin);
    if (member.name == "model") {
      body.model_ = json_string(value).value_or("");
    } else if (member.name == "max_tokens" || member.name == "max_completion_tokens") {
      body.output_tokens_ = number_or_zero(value);
      body.has_max_tokens_ = body.has_max_tokens_ || member.name == "max_tokens";
    }
    body.members_.push_back(
        {edit_of(member.name), member.begin, member.value_begin, member.value_end, member.end});
  }
  return body;
}

bool RequestBody::dropped(const Member& member, bool prefill) const {
  return member.edit == Edit::kOurs || (prefill && member.edit == Edit::kDropped);
}

std::string RequestBody::spliced(bool prefill, std::string_view additions) const {
  const std::string_view text = text_;
  std::string out;
  out.reserve(text.size() + additions.size() + 8);
  const size_t inside = text.find('{') + 1;
  out.append(text.substr(0, inside));
  size_t end = inside;  // Of the last member.
  bool first = true;
  const auto comma = [&] {
    if (!std::exchange(first, false)) {
      out += ',';
    }
  };
  for (const Member& member : members_) {
    end = member.end;
    if (dropped(member, prefill)) {
      continue;
    }
    comma();
    if (prefill && (member.edit == Edit::kOne || member.edit == Edit::kFalse)) {
      out.append(text.substr(member.begin, member.value_begin - member.begin));
      out.append(member.edit == Edit::kOne ? "1" : "false");
      out.append(text.substr(member.value_end, member.end - member.value_end));
    } else {
      out.append(text.substr(member.begin, member.end - member.begin));
    }
  }
  if (!additions.empty()) {
    comma();
    out.append(additions);
  }
  return out.append(text.substr(text.find('}', end)));
}

std::string RequestBody::prefill_leg(std::string_view kv_params) const {
  std::string additions = has_max_tokens_ ? "" : R"("max_tokens":1,)";
  additions.append(R"("kv_transfer_params":)").append(kv_params);
  return spliced(true, additions);
}

std::string RequestBody::decode_leg(std::string_view kv_params) const {
  return spliced(
      false, kv_params.empty() ? "" : std::string(R"("kv_transfer_params":)").append(kv_params));
}

// --- kv_transfer_params

std::string offer_params(const TransferId& transfer) {
  return R"({"do_remote_decode":true,"do_remote_prefill":false,"transfer_id":")" +
         transfer.to_string() + R"("})";
}

// The nulls are what vLLM's own proxies send; engines differ in which of them they insist on.
std::string offer_unnamed_params() {
  return R"({"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,)"
         R"("remote_host":null,"remote_port":null})";
}

std::string fetch_params(std::string_view kv_address, const TransferId& transfer) {
  const std::string own = R"("do_remote_prefill":true,"do_remote_decode":false,"transfer_id":")" +
                          transfer.to_string() + '"';
  const auto members = json_members(kv_address);
  if (!members || members->empty()) {
    return '{' + own + '}';
  }
  return std::string(kv_address.substr(0, members->back().end)).append(",").append(own).append("}");
}

std::string returned_params(std::string_view reply_body) {
  const auto members = json_members(reply_body);
  if (!members) {
    return {};
  }
  for (const JsonMember& member : *members) {
    if (member.name == "kv_transfer_params" && reply_body[member.value_begin] == '{') {
      return std::string(
          reply_body.substr(member.value_begin, member.value_end - member.value_begin));
    }
  }
  return {};
}

}  // namespace pdjob::router
