"""Greedy completions by vLLM's engine, in this process. A test runs it with JSON requests on standard input:

    [{"llm": {arguments of vllm.LLM}, "prompts": [[token ids]], "max_tokens": n, "adapters": [folder or null for each prompt]}, ...]

and reads as many {"completions": [[token ids]], "logprobs": [[of these tokens]], "cached_tokens": n} from the file that the first argument
names. Each request has an engine of its own, one after the other: importing vLLM takes longer than starting a small one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests import engines


def main(out: str) -> None:
    results = [
        engines.use(request["llm"], lambda llm: engines.generate(llm, request["prompts"], request["max_tokens"], request.get("adapters")))
        for request in json.load(sys.stdin)
    ]
    Path(out).write_text(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1])
