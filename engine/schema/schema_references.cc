#include "engine/schema/schema_references.h"

#include <utility>

#include "common/hex.h"
#include "common/parse_number.h"

namespace pdjob::engine {
namespace {

// "%5B" is "[", "~1" is "/".
std::string unescaped(std::string_view step) {
  std::string text;
  for (size_t at = 0; at < step.size(); ++at) {
    const bool escape = step[at] == '%' && at + 2 < step.size();
    const auto byte = escape ? parse_hex(step.substr(at + 1, 2)) : std::nullopt;
    text += byte ? static_cast<char>(*byte) : step[at];
    at += byte ? 2 : 0;
  }
  std::string out;
  for (size_t at = 0; at < text.size(); ++at) {
    const bool escape = text[at] == '~' && at + 1 < text.size();
    const bool known = escape && (text[at + 1] == '0' || text[at + 1] == '1');
    out += !known ? text[at] : text[at + 1] == '1' ? '/' : '~';
    at += known ? 1 : 0;
  }
  return out;
}

const picojson::value* below(const picojson::value& at, const std::string& step) {
  if (at.is<picojson::object>()) {
    return member(at.get<picojson::object>(), step);
  }
  const auto index = parse_number<size_t>(step);
  return at.is<picojson::array>() && index && *index < at.get<picojson::array>().size()
             ? &at.get<picojson::array>()[*index]
             : nullptr;
}

}  // namespace

SchemaReferences::SchemaReferences(const picojson::value& root) : root_(root) {
  if (root.is<picojson::object>()) {
    const auto* id = member(root.get<picojson::object>(), "$id");
    id_ = id != nullptr && id->is<std::string>() ? id->get<std::string>() : "";
  }
}

std::optional<std::string_view> SchemaReferences::way_of(std::string_view uri) const {
  if (!uri.starts_with('#')) {
    if (id_.empty() || !uri.starts_with(id_)) {
      return std::nullopt;
    }
    uri.remove_prefix(id_.size());
  }
  return uri.starts_with('#') ? uri.substr(1) : uri;
}

SchemaReferences::Target SchemaReferences::at(std::string_view way) const {
  Target found = {.path = "$", .schema = &root_};
  while (!way.empty() && found.schema != nullptr) {
    if (!way.starts_with('/')) {
      return {};
    }
    const size_t end = std::min(way.find('/', 1), way.size());
    const std::string step = unescaped(way.substr(1, end - 1));
    found.schema = below(*found.schema, step);
    found.path.append(".").append(step);
    way.remove_prefix(end);
  }
  return found;
}

std::string SchemaReferences::obstacle(const std::string& uri) const {
  const auto way = way_of(uri);
  if (!way) {
    return "$ref must stay inside the schema";
  }
  return at(*way).schema != nullptr ? ""
                                    : "$ref must be \"#\", or \"#/\" and the way to a schema in it";
}

Result<size_t> SchemaReferences::find(const picojson::value& reference, const std::string& path) {
  if (!reference.is<std::string>()) {
    return refused_schema(path, "$ref must be a text");
  }
  const std::string& uri = reference.get<std::string>();
  if (const std::string why = obstacle(uri); !why.empty()) {
    return refused_schema(path, why);
  }
  Target target = at(*way_of(uri));
  if (target.schema == &root_) {
    return size_t{0};
  }
  const auto [found, added] = numbers_.emplace(target.schema, targets_.size() + 1);
  if (added) {
    targets_.push_back(std::move(target));
  }
  return found->second;
}

void SchemaReferences::applies(size_t owner, size_t target) {
  applied_.resize(std::max({applied_.size(), owner + 1, target + 1}));
  applied_[owner].push_back(target);
}

Status SchemaReferences::check_cycles() const {
  enum class Mark : uint8_t { kNew, kOpen, kDone };
  std::vector<Mark> marks(applied_.size(), Mark::kNew);
  std::vector<std::pair<size_t, size_t>> way;  // Owner, and how many of its references are done.
  for (size_t start = 0; start < applied_.size(); ++start) {
    if (marks[start] == Mark::kNew) {
      way.emplace_back(start, 0);
      marks[start] = Mark::kOpen;
    }
    while (!way.empty()) {
      auto& [owner, walked] = way.back();
      if (walked == applied_[owner].size()) {
        marks[owner] = Mark::kDone;
        way.pop_back();
        continue;
      }
      const size_t next = applied_[owner][walked++];
      if (marks[next] == Mark::kOpen) {
        return refused_schema(next == 0 ? "$" : targets_[next - 1].path,
                              "$ref leads back to itself");
      }
      if (marks[next] == Mark::kNew) {
        marks[next] = Mark::kOpen;
        way.emplace_back(next, 0);
      }
    }
  }
  return ok();
}

}  // namespace pdjob::engine
