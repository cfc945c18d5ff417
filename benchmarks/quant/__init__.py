"""Quantised inference beside bf16, the machine, llama.cpp and vLLM's CPU backend."""
