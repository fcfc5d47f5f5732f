// ToolCallReader: splits the text of one choice, as it comes, into content and calls of tools, in
// the form of grammar/tool_calls.h. Text that breaks the form counts as content. White space beside
// a call is dropped. Value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pdjob::engine {

// A part of a call.
struct ToolCallPiece {
  uint32_t call = 0;      // Counted from 0.
  std::string name;       // Only in a call's first piece.
  std::string arguments;  // More of the JSON object.
};

class ToolCallReader {
 public:
  // Appends what `text` adds. Text that may be the beginning of a call is held back.
  void read(std::string_view text, std::string& content, std::vector<ToolCallPiece>& pieces);
  // The text ends here. Appends what was held back.
  void finish(std::string& content);
  // True if there was a call, and the last one is whole.
  bool ends_in_calls() const { return calls_ > 0 && place_ == Place::kContent; }

 private:
  enum class Place : uint8_t { kContent, kHead, kArguments, kClose };

  void read_content(char byte, std::string& content);
  void read_head(char byte, std::string& content, std::vector<ToolCallPiece>& pieces);
  void read_argument(char byte, std::vector<ToolCallPiece>& pieces);
  void read_close(char byte, std::string& content);
  // True if held_ can go on to open a call.
  bool may_open() const;
  // Gives up on a call that breaks the form.
  void give_back(std::string& content);

  Place place_ = Place::kContent;
  // White space and the beginning of kCallOpen; or what has come of a head or of kCallClose.
  std::string held_;
  uint32_t calls_ = 0;  // Begun.
  uint32_t depth_ = 0;  // Open brackets of the arguments.
  bool quoted_ = false;
  bool escaped_ = false;
};

}  // namespace pdjob::engine
