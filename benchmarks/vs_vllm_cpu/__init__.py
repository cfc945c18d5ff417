"""Jumar beside vLLM's own CPU backend."""
