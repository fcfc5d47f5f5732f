// Where the $ref of a schema lead. Only for json_schema.cc, since it exposes picojson. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "engine/schema/schema_json.h"

namespace pdjob::engine {

class SchemaReferences {
 public:
  // `root` must outlive it.
  explicit SchemaReferences(const picojson::value& root);

  // A schema that a $ref leads to.
  struct Target {
    std::string path;
    const picojson::value* schema = nullptr;
  };

  // Why the $ref cannot be followed; empty if it can be. Other documents are never fetched.
  std::string obstacle(const std::string& uri) const;
  // The number of the target: 0 for the root, otherwise its place in targets(), plus 1. Fails with
  // kInvalidArgument if the $ref cannot be followed.
  Result<size_t> find(const picojson::value& reference, const std::string& path);
  const picojson::value& schema(size_t number) const {
    return number == 0 ? root_ : *targets_[number - 1].schema;
  }
  const std::vector<Target>& targets() const { return targets_; }

  // Notes that the schema `owner` applies the schema `target` to the same value.
  void applies(size_t owner, size_t target);
  // Refuses a $ref that leads back to itself for the same value: it would never end.
  Status check_cycles() const;

 private:
  // The steps from the root to the target; empty if it is in another document.
  std::optional<std::string_view> way_of(std::string_view uri) const;
  // The schema is null if there is none.
  Target at(std::string_view way) const;

  const picojson::value& root_;
  std::string id_;  // Of the root.
  std::vector<Target> targets_;
  std::map<const picojson::value*, size_t> numbers_;
  std::vector<std::vector<size_t>> applied_ = {{}};  // By owner.
};

}  // namespace pdjob::engine
