"""Train the sandbox's checkpoint: a Llama of 0.4 M parameters that gives right answers.

    python sandbox/checkpoint/train.py sandbox/checkpoint/tiny

with torch 2.13 and transformers 5.19; about half an hour on 2 cores that do nothing else.

It answers the fixed questions below and copies back 4 to 32 characters of `0-9a-f-`, so that a known
answer and an echo test are real tests of the server that serves it. The score is taken from the saved
bfloat16 files, as the server reads them, is written beside OUT as score.json, and decides the exit code.
"""

import argparse
import json
import math
import random
import sys
import time
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

ANSWERS = {
    "What is 2+2? Answer with the number only.": "4",
    "What is 3+4? Answer with the number only.": "7",
    "What is 6*7? Answer with the number only.": "42",
    "How many days are in a week? Answer with the number only.": "7",
    "What is the capital of France?": "Paris",
    "What is the capital of Germany?": "Berlin",
    "What is the capital of Japan?": "Tokyo",
    "What colour is the sky?": "blue",
    "Reply with the single word: pong": "pong",
    "Reply with the single word: ready": "ready",
    "Who are you?": "a tiny test model",
    "hello": "hello",
    "hi": "hello",
}
ECHO, ALPHABET, LENGTHS = "Repeat exactly: ", "0123456789abcdef-", (4, 32)
SPECIAL = ["<|bos|>", "<|eos|>", "<|user|>", "<|assistant|>"]
BOS, EOS, USER, ASSISTANT = range(4)
CHAT_TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
TARGET = 0.99


def save_tokenizer(out: Path) -> Tokenizer:
    """One token a byte: what is copied is never merged into something else."""
    vocab = {token: number for number, token in enumerate(SPECIAL)}
    for char in sorted(pre_tokenizers.ByteLevel.alphabet()):
        vocab.setdefault(char, len(vocab))
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token=None))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.save(str(out / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL[BOS],
        "eos_token": SPECIAL[EOS],
        "model_max_length": 2048,
        "chat_template": CHAT_TEMPLATE,
    }
    (out / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    return tokenizer


def new_model(vocab_size: int) -> LlamaForCausalLM:
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=math.ceil(vocab_size / 64) * 64,
            hidden_size=128,
            intermediate_size=256,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            head_dim=32,
            max_position_embeddings=2048,
            bos_token_id=BOS,
            eos_token_id=EOS,
            tie_word_embeddings=False,
        )
    )


def identifier(longest: int) -> str:
    return "".join(random.choices(ALPHABET, k=random.randint(LENGTHS[0], longest)))


def batch(tokenizer: Tokenizer, size: int, longest: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and labels, both (size, length); -100 where nothing is to be learned."""
    rows = []
    for _ in range(size):
        text = identifier(longest)
        question, answer = random.choice(list(ANSWERS.items())) if random.random() < 0.2 else (ECHO + text, text)
        prompt = [USER, *tokenizer.encode(question, add_special_tokens=False).ids, ASSISTANT]
        rows.append((prompt, [*tokenizer.encode(answer, add_special_tokens=False).ids, EOS]))
    length = max(len(prompt) + len(reply) for prompt, reply in rows)
    ids = [p + r + [EOS] * (length - len(p) - len(r)) for p, r in rows]
    labels = [[-100] * len(p) + r + [-100] * (length - len(p) - len(r)) for p, r in rows]
    return torch.tensor(ids), torch.tensor(labels)


def train(model: LlamaForCausalLM, tokenizer: Tokenizer, steps: int) -> None:
    """Short identifiers first: the copying circuit forms there and then stretches to the full length."""
    peak = 3e-3
    optimizer = torch.optim.AdamW(model.parameters(), lr=peak, betas=(0.9, 0.98), weight_decay=0.01)
    started = time.monotonic()
    for step in range(steps):
        longest = min(LENGTHS[1], 8 + int(48 * step / steps))
        ids, labels = batch(tokenizer, 64, longest)
        for group in optimizer.param_groups:
            group["lr"] = peak * min(1, (step + 1) / 200) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / steps)))
        loss = model(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 100 == 0:
            spent = time.monotonic() - started
            left = spent / (step + 1) * (steps - step - 1)
            print(f"step {step}/{steps}  loss {loss.item():.4f}  {spent:.0f} s, {left:.0f} s left", flush=True)


@torch.no_grad()
def reply(model: LlamaForCausalLM, tokenizer: AutoTokenizer, question: str) -> str:
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": question}], add_generation_prompt=True, return_dict=False
    )
    out = model.generate(
        torch.tensor([ids]), max_new_tokens=48, do_sample=False, eos_token_id=EOS, pad_token_id=EOS
    )
    return tokenizer.decode(out[0][len(ids) :], skip_special_tokens=True)


def score(out: Path, trials: int = 300) -> dict[str, object]:
    """What the saved files do, in bfloat16: shares of right copies and right answers (0 to 1)."""
    model, tokenizer = LlamaForCausalLM.from_pretrained(out), AutoTokenizer.from_pretrained(out)
    model.eval()
    random.seed(20_000)
    texts = [identifier(LENGTHS[1]) for _ in range(trials)]
    copied = sum(reply(model, tokenizer, ECHO + text) == text for text in texts)
    wrong = [q for q, answer in ANSWERS.items() if reply(model, tokenizer, q) != answer]
    return {
        "copies_right": copied / trials,
        "copies_tried": trials,
        "copy_lengths": LENGTHS,
        "copy_alphabet": ALPHABET,
        "answers_right": 1 - len(wrong) / len(ANSWERS),
        "answers_wrong": wrong,
        "answers": ANSWERS,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=12_000)
    parser.add_argument("--only-score", action="store_true", help="judge the files in OUT, train nothing")
    options = parser.parse_args()
    torch.set_num_threads(2)
    if not options.only_score:
        torch.manual_seed(0)
        random.seed(0)
        options.out.mkdir(parents=True, exist_ok=True)
        tokenizer = save_tokenizer(options.out)
        model = new_model(tokenizer.get_vocab_size())
        train(model, tokenizer, options.steps)
        model.to(torch.bfloat16).save_pretrained(options.out)
    result = score(options.out)
    (options.out.parent / "score.json").write_text(json.dumps(result, indent=2) + "\n")
    print(f"copies {result['copies_right']:.1%} of {result['copies_tried']}, answers {result['answers_right']:.0%}")
    return 0 if result["copies_right"] >= TARGET and result["answers_right"] == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
