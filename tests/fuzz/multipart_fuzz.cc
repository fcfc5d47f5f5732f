// Reads hostile forms. The parts are the same however the bytes are split, all of their bytes come
// from the form, and a form that is refused whole is refused in pieces.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/check.h"
#include "net/http/multipart_parser.h"

namespace {

using namespace pdjob;
using namespace pdjob::net;

class Recorder final : public MultipartParser::Handler {
 public:
  std::string seen;
  size_t bytes = 0;

  Status on_part(const MultipartParser::Part& part) override {
    PDJOB_CHECK(!part.name.empty());
    seen += "\npart " + part.name + (part.is_file ? " file " : " ") + part.filename + "\n";
    return ok();
  }
  Status on_bytes(std::string_view more) override {
    PDJOB_CHECK(!more.empty());
    bytes += more.size();
    seen += more;
    return ok();
  }
  Status on_part_end() override {
    seen += "\nend\n";
    return ok();
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) {
    return 0;
  }
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (const auto boundary = boundary_of(text)) {
    PDJOB_CHECK(!boundary->empty() && boundary->size() <= 70);
  }
  const size_t piece = 1 + data[0] % 32;
  MultipartParser whole("b");
  Recorder of_whole;
  const bool accepted = whole.feed(text, of_whole).has_value();
  MultipartParser pieces("b");
  Recorder of_pieces;
  bool pieces_accepted = true;
  for (size_t at = 0; pieces_accepted && at < text.size(); at += piece) {
    pieces_accepted = pieces.feed(text.substr(at, piece), of_pieces).has_value();
  }
  PDJOB_CHECK(of_whole.bytes <= text.size());
  PDJOB_CHECK(accepted == pieces_accepted);
  PDJOB_CHECK(whole.done() == pieces.done());
  if (whole.done()) {
    PDJOB_CHECK(of_whole.seen == of_pieces.seen);
  }
  return 0;
}
