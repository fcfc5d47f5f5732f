// Shared by the routes of the Batch API: parameters of a query, lists, and errors in OpenAI's
// words. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "batch/catalog/shelf.h"
#include "common/result.h"
#include "openai/openai.h"

namespace pdjob::batch {

struct ListQuery {
  std::string after;  // Empty: from the begin.
  size_t limit = 0;
  ListOrder order = ListOrder::kNewestFirst;
  std::string purpose;  // Empty: any.
};
struct ListLimits {
  size_t usual = 20;
  size_t max = 100;
};
// `query`: of a URL, without '?'. Unknown parameters are ignored.
Result<ListQuery, openai::ApiError> parse_list_query(std::string_view query,
                                                     const ListLimits& limits);

struct ListItem {
  std::string id;
  std::string object;  // JSON.
};
std::string list_object(const std::vector<ListItem>& items, bool has_more);
std::string deleted_object(const std::string& id);

openai::ApiError no_such_file(const std::string& id);
openai::ApiError no_such_batch(const std::string& id);
openai::ApiError overloaded(std::string message);

}  // namespace pdjob::batch
