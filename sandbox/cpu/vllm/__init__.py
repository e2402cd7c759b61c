"""Stand-in for vLLM, of which SGLang takes one function on a CPU; see _custom_ops.py."""
