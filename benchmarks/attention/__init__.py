"""Attention beside the machine's limits, torch and vLLM's CPU operator."""
