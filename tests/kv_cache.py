"""Engines with different KV caches, one after the other, in this process. A test runs it with a JSON request on standard input:

    {"engines": {name: {arguments of vllm.LLM}}, "prompts": [[token ids]], "max_tokens": n}

and reads from the file that the first argument names, for each engine, {"runs": [of the prompts, twice], "blocks": of the cache}, or
{"error": text}. A run is {"completions": [[token ids]], "logprobs": [[of these tokens]], "cached_tokens": n}.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests import engines


def main(out: str) -> None:
    request = json.load(sys.stdin)

    def twice(llm) -> dict:
        return {
            "runs": [engines.generate(llm, request["prompts"], request["max_tokens"]) for _ in range(2)],
            "blocks": llm.llm_engine.vllm_config.cache_config.num_gpu_blocks,
        }

    results = {name: engines.use(options, twice, may_fail=True) for name, options in request["engines"].items()}
    Path(out).write_text(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1])
