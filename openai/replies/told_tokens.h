// ToldTokens: the tokens of a reply so far, as a worker of pdjob tells them while it generates.
// Another worker can go on with them (pdjob_resume). A note says some of one choice:
//
//   CHOICE[@START].TOKEN.TOKEN...[;w=HEX][;m=HEX]
//
// `@START` is how many tokens of the choice come before; without it, they follow those told so far.
// `w` is the version of the weights that made them, in hexadecimal, where it is another one than
// before. `m` is the model that they mean something to, in hexadecimal, too. Notes come in chunk
// extensions of a stream, and in interim responses (103) before a whole reply. Value.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "common/generation.h"

namespace pdjob::openai {

class ToldTokens {
 public:
  enum class Taken {
    kNew,    // There are other tokens than before.
    kKnown,  // They were told before.
    kGap,    // Tokens before them are not known: it changes nothing.
    kBad,    // It is no note.
  };
  // Where a note differs from what is known, it replaces that token and all later ones; another
  // model replaces all.
  Taken take(std::string_view note);

  size_t count() const { return count_; }
  // The tokens of each choice so far, in the form of pdjob_resume: "[[1,2],[3]]".
  std::string tokens_json() const;
  // The weights that made them, in the form of pdjob_resume_weights; empty: they are not known.
  std::string weights_json() const;
  // In the form of pdjob_resume_model; empty: it was not told.
  std::string model_json() const { return model_.empty() ? "" : '"' + model_ + '"'; }

 private:
  // From token `start` on, a choice's tokens are of this version.
  struct Weights {
    std::string version;  // In hexadecimal.
    size_t start = 0;
  };
  struct Choice {
    std::vector<Token> tokens;
    std::vector<Weights> weights;
  };

  void cut(Choice& choice, size_t tokens);
  static void note_weights(Choice& choice, size_t start, std::string_view version);

  size_t count_ = 0;  // Tokens of all choices.
  std::vector<Choice> choices_;
  std::string model_;
};

}  // namespace pdjob::openai
