"""Makes a tiny Llama with random weights, for engines that read Hugging Face's format: make_tiny_llama.py FOLDER

Run it with the Python of an environment that has vLLM. The weights are large on purpose: with small ones, greedy text repeats one token. Two runs
make the same files.
"""

import pathlib
import sys
import sysconfig

import tokenizers
import torch
import transformers

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHAT_TEMPLATE = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"


def make_tokenizer():
    text = tokenizers.Tokenizer(tokenizers.models.BPE())
    text.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    text.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=4000, special_tokens=SPECIAL, initial_alphabet=sorted(alphabet), show_progress=False)
    library = sorted(pathlib.Path(sysconfig.get_path("stdlib")).glob("[a-d]*.py"))
    text.train([str(path) for path in library], trainer)
    wrapped = transformers.PreTrainedTokenizerFast(tokenizer_object=text, eos_token=SPECIAL[0], pad_token=SPECIAL[0])
    wrapped.chat_template = CHAT_TEMPLATE
    return wrapped


def main():
    folder = sys.argv[1]
    tokenizer = make_tokenizer()
    tokenizer.save_pretrained(folder)
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=256, intermediate_size=688, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=4096, initializer_range=0.2, bos_token_id=None, eos_token_id=0, pad_token_id=0, torch_dtype="bfloat16")
    transformers.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)


if __name__ == "__main__":
    main()
